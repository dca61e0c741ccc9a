#include "asap/serve/stop_matcher.h"

#include <algorithm>

namespace asap {

std::string StopMatcher::push(std::string_view piece) {
  if (!matched_.empty()) return {};
  held_ += piece;
  size_t cut = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at < cut) {
      cut = at;
      matched_ = stop;
    }
  }
  if (cut != std::string::npos) return std::exchange(held_, {}).substr(0, cut);

  // The longest end of the text that begins a stop string stays.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(held_.size(), stop.size() - 1); n > keep; --n) {
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, n))) keep = n;
    }
  }
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return shown;
}

}  // namespace asap
