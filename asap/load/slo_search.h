// The highest request rate that meets a limit on TTFT: doubling to find a rate that misses it, then
// bisection. A value: rates go out, verdicts come in.
#pragma once

#include <optional>

namespace asap {

class SloSearch {
 public:
  // Starts at `start`; ends when the bracket is within `tolerance` (a ratio, 0.05 = 5 %) or the
  // rate leaves [least, most].
  SloSearch(double start, double tolerance, double least = 0.01, double most = 1e5)
      : rate_(start), tolerance_(tolerance), least_(least), most_(most) {}

  // The rate to try next; empty when the search is over.
  std::optional<double> next() const {
    if (over_) return std::nullopt;
    return rate_;
  }
  void record(bool met);
  // The highest rate known to meet the limit; 0: none did.
  double best() const { return low_; }

 private:
  double rate_;
  double tolerance_, least_, most_;
  double low_ = 0;   // meets the limit
  double high_ = 0;  // misses it; 0: none known
  bool over_ = false;
};

}  // namespace asap
