// Frame: the ids that the "post_processor" of tokenizer.json puts around a text.
//
// Known: ByteLevel (adds nothing), TemplateProcessing, BertProcessing, RobertaProcessing, Sequence.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "asap/base/result.h"

namespace asap {

struct Frame {
  std::vector<int32_t> prefix, suffix;

  // `is_token` tells whether an id is one. Errors: invalid; unsupported, with the type's name.
  static Result<Frame> parse(const nlohmann::json& config,
                             const std::function<bool(int64_t)>& is_token);
};

}  // namespace asap
