// EventStream: a completion stream (server-sent events) as the parts that a load generator looks
// at. Bytes may come cut anywhere.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asap/load/time_parts.h"

namespace asap {

struct StreamEvent {
  bool token = false;     // carries generated text or a token
  int prompt_tokens = 0;  // of a usage block; 0: none
  int completion_tokens = 0;
  std::string error;               // message of an error object
  std::optional<TimeParts> parts;  // of an object "asap_timing" with numbers
};

class EventStream {
 public:
  // Events completed by `bytes`. "[DONE]", comments and empty events give nothing.
  std::vector<StreamEvent> push(std::string_view bytes);

 private:
  std::string line_;
};

}  // namespace asap
