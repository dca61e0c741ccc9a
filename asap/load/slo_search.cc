#include "asap/load/slo_search.h"

namespace asap {

void SloSearch::record(bool met) {
  if (over_) return;
  (met ? low_ : high_) = rate_;
  if (high_ == 0) {
    rate_ *= 2;
  } else if (low_ == 0) {
    rate_ /= 2;
  } else {
    rate_ = (low_ + high_) / 2;
  }
  const bool close = low_ > 0 && high_ > 0 && high_ - low_ <= tolerance_ * low_;
  over_ = close || rate_ < least_ || rate_ > most_;
}

}  // namespace asap
