#include "asap/runtime/control.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "asap/base/check.h"
#include "asap/transport/shared_memory.h"

namespace asap {

namespace {

constexpr uint64_t kMagic = 0x31304C5243504153;  // "ASAPCRL0" and a version
constexpr uint64_t kConfigBytes = 8192;

}  // namespace

struct Control::Header {
  uint64_t magic;
  uint64_t workers_at;
  uint64_t rings_at;
  uint64_t ring_bytes;
  Geometry geometry;
  int32_t front_pid;
  alignas(64) std::atomic<uint32_t> stop;
  char config[kConfigBytes];
};

void SharedText::write(const std::string& text) {
  const size_t n = std::min(text.size(), sizeof(bytes_) - 1);
  for (size_t i = 0; i < n; ++i) bytes_[i].store(text[i], std::memory_order_relaxed);
  bytes_[n].store('\0', std::memory_order_release);
}

std::string SharedText::read() const {
  std::string out;
  for (const auto& byte : bytes_) {
    const char c = byte.load(std::memory_order_relaxed);
    if (c == '\0') break;
    out.push_back(c);
  }
  return out;
}

Result<std::unique_ptr<Control>> Control::create(const EngineConfig& config,
                                                 const Geometry& geometry) {
  const auto devices = static_cast<uint64_t>(geometry.devices());
  const uint64_t workers_at = (sizeof(Header) + 63) / 64 * 64;
  const uint64_t rings_at = (workers_at + devices * sizeof(WorkerSlot) + 63) / 64 * 64;
  const auto events = static_cast<uint32_t>(config.trace ? config.trace_events : kRecorderEvents);
  const uint64_t ring_bytes = (TraceRing::bytes(events) + 63) / 64 * 64;
  std::unique_ptr<Control> out(new Control);
  out->bytes_ = rings_at + devices * kAgentsPerDevice * ring_bytes;
  ASAP_ASSIGN(out->fd_, create_shared_memory("asap-control", out->bytes_));
  void* base = mmap(nullptr, out->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, out->fd_, 0);
  if (base == MAP_FAILED) {
    return fail(Code::internal, "cannot map the control block: {}", std::strerror(errno));
  }
  const std::string text = config_to_json(config);
  if (text.size() >= kConfigBytes) {
    return fail(Code::invalid,
                "the configuration takes {} bytes, at most {}: shorten --model or "
                "--hf-overrides",
                text.size(), kConfigBytes - 1);
  }
  out->header_ = new (base) Header;
  out->header_->magic = kMagic;
  out->header_->workers_at = workers_at;
  out->header_->rings_at = rings_at;
  out->header_->ring_bytes = ring_bytes;
  out->header_->geometry = geometry;
  out->header_->front_pid = getpid();
  std::memcpy(out->header_->config, text.c_str(), text.size() + 1);
  for (int device = 0; device < geometry.devices(); ++device) {
    new (&out->worker(device)) WorkerSlot;
    for (int agent = 0; agent < kAgentsPerDevice; ++agent) {
      TraceRing::create(reinterpret_cast<std::byte*>(out->ring(device, agent)), events);
    }
  }
  return out;
}

Result<std::unique_ptr<Control>> Control::attach(int fd) {
  std::unique_ptr<Control> out(new Control);
  struct stat info {};
  if (fstat(fd, &info) != 0 || static_cast<uint64_t>(info.st_size) < sizeof(Header)) {
    return fail(Code::invalid,
                "no control block at descriptor {}: workers are started by asap serve or asap run, "
                "not by hand",
                fd);
  }
  out->bytes_ = static_cast<uint64_t>(info.st_size);
  void* base = mmap(nullptr, out->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    return fail(Code::internal, "cannot map the control block: {}", std::strerror(errno));
  }
  out->header_ = static_cast<Header*>(base);
  if (out->header_->magic != kMagic) {
    return fail(Code::invalid, "descriptor {} is not a control block of this version", fd);
  }
  return out;
}

Control::~Control() {
  if (header_ != nullptr) munmap(header_, bytes_);
  if (fd_ >= 0) close(fd_);
}

const Geometry& Control::geometry() const {
  return header_->geometry;
}
std::string Control::config_json() const {
  return header_->config;
}
int Control::front_pid() const {
  return header_->front_pid;
}
std::atomic<uint32_t>& Control::stop() {
  return header_->stop;
}

WorkerSlot& Control::worker(int device) {
  CHECK(device >= 0 && device < header_->geometry.devices());
  auto* slots = reinterpret_cast<std::byte*>(header_) + header_->workers_at;
  return reinterpret_cast<WorkerSlot*>(slots)[device];
}

TraceRing* Control::ring(int device, int agent) {
  const auto index = static_cast<uint64_t>(device * kAgentsPerDevice + agent);
  return reinterpret_cast<TraceRing*>(reinterpret_cast<std::byte*>(header_) + header_->rings_at +
                                      index * header_->ring_bytes);
}

}  // namespace asap
