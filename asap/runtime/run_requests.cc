#include "asap/runtime/run_requests.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace asap {

namespace {

// Shared with the engine's callbacks, which may outlive a caller that gave up.
struct Progress {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Answer> answers;
  size_t finished = 0;
  bool failed = false;
  Error error;

  void add(size_t index, TokenEvent event) {
    const std::lock_guard lock(mutex);
    Answer& answer = answers[index];
    if (event.token >= 0) {
      if (answer.tokens.empty()) {
        answer.ttft = event.emitted - event.arrived;
        answer.times = event.times;
      }
      answer.tokens.push_back(event.token);
    }
    if (!event.logits.empty()) answer.logits = std::move(event.logits);
    if (event.finish == Finish::error && !failed) {
      failed = true;
      error = std::move(event.error);
    }
    if (event.finish != Finish::none) ++finished;
    changed.notify_one();
  }

  // True when all ended; false when one failed or the caller was interrupted.
  bool wait(const std::function<bool()>& interrupted) {
    std::unique_lock lock(mutex);
    while (finished < answers.size() && !failed && !interrupted()) {
      changed.wait_for(lock, std::chrono::milliseconds(100));
    }
    if (failed) return false;
    if (finished == answers.size()) return true;
    error = {Code::unavailable, "interrupted"};
    return false;
  }
};

}  // namespace

Result<std::vector<Answer>> run_requests(Engine& engine, std::vector<EngineRequest> requests,
                                         const std::function<bool()>& interrupted) {
  const auto progress = std::make_shared<Progress>();
  progress->answers.resize(requests.size());
  std::vector<uint64_t> handles;
  const auto give_up = [&](Error error) {
    for (const uint64_t handle : handles) engine.cancel(handle);
    return tl::unexpected<Error>(std::move(error));
  };
  for (size_t i = 0; i < requests.size(); ++i) {
    auto handle = engine.submit(std::move(requests[i]), [progress, i](TokenEvent event) {
      progress->add(i, std::move(event));
    });
    if (!handle) return give_up(std::move(handle).error());
    handles.push_back(*handle);
  }
  if (!progress->wait(interrupted)) return give_up(progress->error);
  const std::lock_guard lock(progress->mutex);
  return std::move(progress->answers);
}

}  // namespace asap
