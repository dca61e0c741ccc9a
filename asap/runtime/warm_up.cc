#include "asap/runtime/warm_up.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "asap/runtime/clock.h"

namespace asap {

namespace {

constexpr int kPromptTokens = 512;
constexpr int kPromptsPerGroup = 16;  // twice the most stages that a group can have
constexpr auto kLook = std::chrono::milliseconds(5);

}  // namespace

bool warm_up(Engine& engine, Duration most, const std::function<bool()>& interrupted) {
  const Instant deadline = monotonic_now() + most;
  const auto groups = std::max<size_t>(1, engine.stats().groups.size());
  const auto tokens = static_cast<size_t>(std::min(kPromptTokens, engine.max_model_len() - 1));
  const auto left = std::make_shared<std::atomic<int>>(0);  // the engine may outlive this call
  std::vector<uint64_t> handles;
  bool known = false;
  while (!known && !interrupted() && monotonic_now() < deadline) {
    while (*left < static_cast<int>(groups) * kPromptsPerGroup) {
      EngineRequest request;
      request.id = "warm-up";
      request.prompt.assign(tokens, 0);
      request.sampling.max_tokens = 1;
      ++*left;
      const auto handle = engine.submit(std::move(request), [left](const TokenEvent& event) {
        if (event.finish != Finish::none) --*left;
      });
      if (!handle) {  // the queue is full: enough waits
        --*left;
        break;
      }
      handles.push_back(*handle);
    }
    std::this_thread::sleep_for(kLook);
    known = engine.stats().waiting_seconds > 0;
  }
  for (const uint64_t handle : handles) engine.cancel(handle);
  return known;
}

}  // namespace asap
