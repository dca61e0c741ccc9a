// MetaspaceOptions: what "Metaspace" of tokenizer.json holds, as a pre_tokenizer and as a decoder.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "asap/base/result.h"

namespace asap {

struct MetaspaceOptions {
  // Before which texts the replacement is put: all, or only the first of a whole text.
  enum class Prepend { never, always, first };

  std::string replacement;  // one character, for a space
  Prepend prepend = Prepend::always;
  bool split = true;  // cuts before every replacement

  // Older files say add_prefix_space, newer ones prepend_scheme. Errors: invalid.
  static Result<MetaspaceOptions> parse(const nlohmann::json& config, const std::string& where);
};

}  // namespace asap
