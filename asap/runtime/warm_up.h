// warm_up: shows an engine its own speed before anybody else asks it for anything. Admission by
// time (policy/admission.h) knows no speed until requests have waited for a while; without this the
// first burst after a start would all be let in.
#pragma once

#include <functional>

#include "asap/runtime/engine.h"

namespace asap {

// Sends short prompts, more than can run at once, until the engine knows how long its queue takes,
// at most `most`; then cancels what is left. False if it still does not know.
bool warm_up(Engine& engine, Duration most, const std::function<bool()>& interrupted);

}  // namespace asap
