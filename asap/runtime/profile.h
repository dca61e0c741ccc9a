// Cost profiles as TOML files: some are compiled in (profiles/), `asap calibrate` writes more.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "asap/base/result.h"
#include "asap/policy/cost_profile.h"

namespace asap {

// `name_or_path`: a built-in's name, else a file. Errors: not_found (lists the built-ins), invalid
// (names file, key and what it must be).
Result<CostProfile> load_profile(const std::string& name_or_path);
// `what` names the text in errors.
Result<CostProfile> parse_profile(std::string_view text, const std::string& what);
// Text that parse_profile reads back to the same numbers.
std::string profile_text(const CostProfile& profile);
std::vector<std::string> builtin_profiles();

}  // namespace asap
