#include "asap/cli/workload_flags.h"

#include "asap/cli/shipped_files.h"
#include "asap/cli/validators.h"

namespace asap {

void add_workload_flags(CLI::App& app, WorkloadFlags& flags) {
  WorkloadSpec& w = flags.spec;
  app.add_option(
      "--trace", w.trace_file,
      "W0, W1, W4 (traces/README.md), or a file: CSV or JSON lines with arrival times and "
      "lengths");
  app.add_option("--arrival-column", w.arrival_column, "Column of a CSV trace with seconds");
  app.add_option("--lengths", flags.lengths,
                 "Without a trace: constant:N, uniform:LO:HI, lognormal:MU:SIGMA:MIN:MAX");
  app.add_option("--request-rate", w.rate, "Requests per second")->check(between(1e-3, 1e5));
  app.add_flag("--native-rate", w.native_rate, "A trace's own times instead of --request-rate");
  app.add_option("--burstiness", w.burstiness, "Shape of the gamma law of gaps; 1 is Poisson")
      ->check(between(1e-2, 1e3));
  app.add_option("--duration", w.seconds, "Seconds of arrivals")->check(between(0.1, 1e6));
  app.add_option("--num-prompts", w.max_requests, "At most so many requests; 0: no limit")
      ->check(CLI::Range(0, 1 << 30));
  app.add_option("--row-offset", w.row_offset, "Rows of a trace to skip")
      ->check(CLI::Range(0, 1 << 30));
  app.add_option("--length-divisor", w.length_divisor, "Divides prompt lengths")
      ->check(between(1e-3, 1e6));
  app.add_option("--max-prompt-tokens", w.max_prompt_tokens,
                 "Longer prompts are left out; 0: no limit")
      ->check(CLI::Range(0, 1 << 30));
  app.add_option("--max-tokens", w.output_tokens, "Tokens to generate; 0: as the trace says")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--seed", w.seed, "Seed of arrivals, lengths and prompts")
      ->check(unsigned_number());
}

Result<WorkloadSpec> workload_spec(const WorkloadFlags& flags) {
  WorkloadSpec spec = flags.spec;
  ASAP_ASSIGN(spec.lengths, parse_length_law(flags.lengths));
  if (!spec.trace_file.empty()) {
    ASAP_ASSIGN(spec.trace_file, find_trace(spec.trace_file));
  }
  return spec;
}

}  // namespace asap
