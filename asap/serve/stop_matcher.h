// Finds stop strings in text that arrives in pieces, and never shows a part of one.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace asap {

class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Text that may be shown now. What could be the beginning of a stop string is held back until
  // more is known.
  std::string push(std::string_view piece);
  // What is still held back, at the end of the text.
  std::string flush() { return std::exchange(held_, {}); }

  // The stop string that ended the text, or "": after a match all text is dropped.
  const std::string& matched() const { return matched_; }
  bool holding() const { return !held_.empty(); }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string matched_;
};

}  // namespace asap
