#include "asap/base/trace.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

namespace asap {

std::string_view trace_op_name(TraceOp op) {
  switch (op) {
    case TraceOp::attention: return "attention";
    case TraceOp::batch: return "batch";
    case TraceOp::combine: return "combine";
    case TraceOp::combine_send: return "combine_send";
    case TraceOp::dense: return "dense";
    case TraceOp::dispatch: return "dispatch";
    case TraceOp::embed: return "embed";
    case TraceOp::experts: return "experts";
    case TraceOp::head: return "head";
    case TraceOp::indexer: return "indexer";
    case TraceOp::project: return "project";
    case TraceOp::receive: return "receive";
    case TraceOp::request: return "request";
    case TraceOp::router: return "router";
    case TraceOp::shared: return "shared";
  }
  return "?";
}

TraceRing* TraceRing::create(std::byte* memory, uint32_t capacity) {
  auto* ring = new (memory) TraceRing;
  ring->capacity_ = capacity;
  return ring;
}

std::vector<TraceEvent> TraceRing::snapshot() const {
  const uint64_t n = count();
  const uint64_t held = std::min<uint64_t>(n, capacity_);
  std::vector<TraceEvent> out;
  out.reserve(held);
  for (uint64_t i = n - held; i < n; ++i) out.push_back(events()[i % capacity_]);
  // What a writer at work has overwritten meanwhile, or is about to.
  const uint64_t m = count();
  if (m != n && m >= capacity_) {
    const uint64_t torn = std::min(held, m - capacity_ + 1 - std::min(n - held, m - capacity_ + 1));
    out.erase(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(torn));
  }
  return out;
}

namespace {

// Requests overlap each other, which only spans of their own can show.
void append_request(const TraceTrack& track, const TraceEvent& e, std::string* out) {
  for (const auto& [phase, ns] : {std::pair{'b', e.begin_ns}, std::pair{'e', e.end_ns}}) {
    fmt::format_to(std::back_inserter(*out),
                   ",\n{{\"name\":\"request {}\",\"cat\":\"request\",\"ph\":\"{}\",\"id\":{},"
                   "\"pid\":{},\"tid\":{},\"ts\":{:.3f}}}",
                   e.batch, phase, e.batch, track.pid, track.tid, static_cast<double>(ns) * 1e-3);
  }
}

void append_event(const TraceTrack& track, const TraceEvent& e, std::string* out) {
  if (e.op == TraceOp::request) return append_request(track, e, out);
  auto at = std::back_inserter(*out);
  const double us = static_cast<double>(e.begin_ns) * 1e-3;
  const double duration_us = static_cast<double>(e.end_ns - e.begin_ns) * 1e-3;
  const std::string name = e.layer >= 0
                               ? fmt::format("b{}/L{}/{}", e.batch, e.layer, trace_op_name(e.op))
                               : fmt::format("b{}/{}", e.batch, trace_op_name(e.op));
  fmt::format_to(at,
                 ",\n{{\"name\":\"{}\",\"cat\":\"{}\",\"ph\":\"X\",\"pid\":{},\"tid\":{},"
                 "\"ts\":{:.3f},\"dur\":{:.3f},\"args\":{{\"batch\":{},\"layer\":{},"
                 "\"group\":{},\"stage\":{}}}}}",
                 name, trace_op_name(e.op), track.pid, track.tid, us, duration_us, e.batch, e.layer,
                 e.group, e.stage);
  if (e.flow == TraceFlow::none) return;
  fmt::format_to(at,
                 ",\n{{\"name\":\"item\",\"cat\":\"item\",\"ph\":\"{}\",\"id\":{},\"pid\":{},"
                 "\"tid\":{},\"ts\":{:.3f}{}}}",
                 e.flow == TraceFlow::start ? "s" : "f", e.flow_id, track.pid, track.tid, us,
                 e.flow == TraceFlow::start ? "" : ",\"bp\":\"e\"");
}

}  // namespace

std::string trace_json(std::span<const TraceTrack> tracks, Instant since) {
  std::string out =
      "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
      "{\"name\":\"asap\",\"ph\":\"M\",\"pid\":0}";
  auto at = std::back_inserter(out);
  for (const TraceTrack& track : tracks) {
    fmt::format_to(at,
                   ",\n{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{},"
                   "\"args\":{{\"name\":\"{}\"}}}}"
                   ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":{},\"tid\":{},"
                   "\"args\":{{\"name\":\"{}\"}}}}",
                   track.pid, track.process, track.pid, track.tid, track.thread);
    if (track.ring == nullptr) continue;
    for (const TraceEvent& event : track.ring->snapshot()) {
      if (event.begin_ns >= since.ns) append_event(track, event, &out);
    }
  }
  out += "\n]}\n";
  return out;
}

Status write_trace(const std::string& path, std::span<const TraceTrack> tracks, Instant since) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    return fail(Code::invalid, "cannot write the trace file {}: {}", path, std::strerror(errno));
  }
  const std::string text = trace_json(tracks, since);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) {
    return fail(Code::internal, "writing the trace file {} failed: {}", path, std::strerror(errno));
  }
  return {};
}

}  // namespace asap
