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

struct alignas(64) WorkerSlot {
  std::atomic<uint32_t> state{0};       // WorkerState
  std::atomic<int32_t> layers_done{0};  // while loading
  SharedText error;                     // state == failed
  SharedText waiting;                   // what its agent waits for
  RowHistogram expert_rows;             // of an expert rank
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
  // Null unless tracing. `agent` in [0, kAgentsPerDevice).
  TraceRing* ring(int device, int agent);

 private:
  Control() = default;
  struct Header;
  Header* header_ = nullptr;
  uint64_t bytes_ = 0;
  int fd_ = -1;
};

}  // namespace asap
