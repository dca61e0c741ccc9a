#include "asap/policy/admission.h"

#include <cmath>

namespace asap {

namespace {

constexpr double kHalfLifeSeconds = 20;
// Less measured time says little: one long batch would be taken for the speed of the instance.
constexpr double kLeastSeconds = 0.5;

}  // namespace

void WorkRate::on_done(double cost, bool backlog, Instant now) {
  if (backlog_) {
    const double passed = (now - last_).to_seconds();
    const double kept = std::exp2(-passed / kHalfLifeSeconds);
    cost_ = cost_ * kept + cost;
    seconds_ = seconds_ * kept + passed;
  }
  backlog_ = backlog;
  last_ = now;
}

double WorkRate::per_second() const {
  return seconds_ >= kLeastSeconds ? cost_ / seconds_ : 0;
}

double Admission::seconds(double cost) const {
  const double rate = rate_.per_second();
  return rate > 0 ? cost / rate : 0;
}

Status Admission::check(const WaitQueue& queue, double cost, int64_t key, Duration timeout,
                        double entering) const {
  // An idle instance takes everything, however long it takes.
  const bool idle = queue.empty() && entering <= 0;
  if (idle || rate_.per_second() <= 0) return {};
  const double waiting = queue.cost() + entering;
  const double all = seconds(waiting + cost);
  if (limit_.ns > 0 && all > limit_.to_seconds()) {
    Error error{Code::overloaded,
                fmt::format("{:.1f} s of work are waiting, with this request {:.1f} s; the limit "
                            "(--max-queued-s) is {:.1f} s; try again later",
                            seconds(waiting), all, limit_.to_seconds())};
    error.retry_after_s = all - limit_.to_seconds();
    return tl::unexpected<Error>(std::move(error));
  }
  if (timeout.ns <= 0) return {};
  const double ahead = seconds(queue.cost_before(key) + entering);
  if (ahead <= timeout.to_seconds()) return {};
  Error error{Code::overloaded,
              fmt::format("{:.1f} s of work are ahead of this request, which may wait {:.1f} s; "
                          "try again later, or allow more (--queue-timeout-s, X-Queue-Timeout-S)",
                          ahead, timeout.to_seconds())};
  error.retry_after_s = ahead - timeout.to_seconds();
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace asap
