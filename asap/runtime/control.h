// Control block: the shared memory through which the front and its workers agree on a configuration
// and tell each other how they are. The front creates it; workers inherit its descriptor, and the
// descriptors of all windows, at fixed numbers. It also holds the trace rings, so that the trace of
// a dead worker can still be written.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "asap/base/result.h"
#include "asap/base/trace.h"
#include "asap/runtime/config.h"
#include "asap/runtime/row_histogram.h"

namespace asap {

inline constexpr int kControlFd = 3;      // in a worker
inline constexpr int kFirstWindowFd = 4;  // window of device i is at kFirstWindowFd + i
inline constexpr int kAgentsPerDevice = 3;
inline constexpr int kRecorderEvents = 256;  // of an agent's ring where no trace is wanted

enum class WorkerState : uint32_t { starting = 0, loading, ready, failed };

// Text with one writer that another process may read at any moment; a torn read shows old and new
// words mixed, which is good enough for a diagnosis and never undefined.
class SharedText {
 public:
  void write(const std::string& text);
  std::string read() const;

 private:
  std::atomic<char> bytes_[512] = {};
};

// Grows with every look that an agent takes at its inputs; while the worker loads, with time. Who
// stands still is stopped, or caught in something. 0: there is no such thread yet.
struct alignas(64) Heartbeat {
  std::atomic<uint64_t> beats{0};
};

struct alignas(64) WorkerSlot {
  std::atomic<uint32_t> state{0};       // WorkerState
  std::atomic<uint64_t> epoch{1};       // of its group, or its own; set before it starts
  Heartbeat hearts[kAgentsPerDevice];   // by thread
  std::atomic<int32_t> layers_done{0};  // while loading
  SharedText error;                     // state == failed
  SharedText waiting;                   // what its agent waits for
  RowHistogram expert_rows;             // of an expert rank
  ExpertLoadCounters expert_load;       // likewise
};

class Control {
 public:
  // Front: creates the memory with `config` and `geometry` in it.
  static Result<std::unique_ptr<Control>> create(const EngineConfig& config,
                                                 const Geometry& geometry);
  // Worker: maps the inherited descriptor. Error (invalid) if this process was not started by a
  // front.
  static Result<std::unique_ptr<Control>> attach(int fd);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  int fd() const { return fd_; }
  const Geometry& geometry() const;
  std::string config_json() const;
  std::atomic<uint32_t>& stop();
  WorkerSlot& worker(int device);
  // `agent` in [0, kAgentsPerDevice). Without tracing a short one: the last events before a death.
  TraceRing* ring(int device, int agent);
  // The front's process, as the workers' parent.
  int front_pid() const;

 private:
  Control() = default;
  struct Header;
  Header* header_ = nullptr;
  uint64_t bytes_ = 0;
  int fd_ = -1;
};

}  // namespace asap
