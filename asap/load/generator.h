// The load generator: sends a workload to an OpenAI-compatible server, open loop, and records when
// each request's first token came.
//
// Open loop: a request is sent at its time whatever happened to those before it. TTFT counts from
// the scheduled time, so a generator that falls behind does not flatter the server; how far behind
// it was is reported. No request leaves the record: what had no first token when the run ended is
// there as unfinished, with its age.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "asap/load/time_parts.h"
#include "asap/load/workload.h"

namespace asap {

struct Target {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  std::string path = "/v1/completions";  // or /v1/chat/completions
  std::string model;                     // of the request body
  std::string api_key;
  bool chat() const { return path.find("chat") != std::string::npos; }
};
// "http://host:port", with or without a path before /v1; https is refused by name.
Result<Target> parse_base_url(const std::string& url);

// The first name that the server's /v1/models lists. Errors: unavailable.
Result<std::string> first_model(const Target& target);

struct LoadOptions {
  int id_low = 100, id_high = 4000;  // token ids of prompts, [low, high)
  bool text_prompts = false;         // words instead of ids, for servers that take no ids
  double length_divisor = 1;         // as in the WorkloadSpec
  uint64_t seed = 0;
  double grace_seconds = 60;  // after the last arrival
  int max_connections = 4096;
};

enum class RequestEnd : uint8_t { finished, refused, failed, unfinished };

// Times in seconds from the start of the run; -1: not reached.
struct RequestRecord {
  double scheduled = 0;
  double sent = -1;
  double first = -1;     // first token
  double finished = -1;  // end of the answer
  int prompt_tokens = 0;
  int output_tokens = 0;
  int status = 0;  // HTTP; 0: no answer
  RequestEnd end = RequestEnd::unfinished;
  std::string error;
  std::optional<TimeParts> parts;  // if the server says them
};

struct LoadProgress {
  int total = 0, sent = 0, done = 0, failed = 0;
  double seconds = 0;
};

struct LoadResult {
  std::vector<RequestRecord> requests;  // one per arrival that was due, in their order
  double seconds = 0;                   // from the first scheduled arrival to the end of the run
};

// Runs the whole workload. `progress` (may be null) is called about twice a second; it returns
// false to stop early. Errors: unavailable (the server cannot be reached at the start).
Result<LoadResult> run_load(const Target& target, const std::vector<Arrival>& workload,
                            const LoadOptions& options,
                            const std::function<bool(const LoadProgress&)>& progress);

}  // namespace asap
