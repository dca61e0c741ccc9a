#include "asap/runtime/verify.h"

#include <algorithm>
#include <cmath>

#include "asap/base/check.h"
#include "asap/compute/attention_side.h"
#include "asap/runtime/make_engine.h"
#include "asap/runtime/run_requests.h"

namespace asap {

namespace {

// The smallest number of ranks above one that divides the model's heads; 1 if there is none.
int tensor_parallel_of(const ModelSpec& spec) {
  for (const int ranks : {2, 3, 5, 7}) {
    if (check_tensor_parallel(spec, ranks)) return ranks;
  }
  return 1;
}

EngineConfig config_of(const Golden& golden, const VerifyRun& run) {
  EngineConfig config;
  config.model = golden.directory;
  config.config_file = run.config_file;
  config.data_parallel_size = run.groups;
  config.tensor_parallel_size = run.ranks;
  config.num_moe_ranks = run.expert_ranks;
  config.ops = run.ops;
  config.dtype = run.dtype;
  config.batch_wait_ms = 0;
  config.return_logits = true;
  config.max_num_batched_tokens = 256;
  config.max_num_seqs = 16;
  for (const GoldenCase& c : golden.cases) {
    const size_t tokens = c.prompt.size() + c.greedy.size();
    config.max_model_len = std::max(config.max_model_len, static_cast<int>(tokens));
  }
  return config;
}

Result<std::vector<Answer>> answers_of(const Golden& golden, const VerifyRun& run,
                                       const Platform& platform,
                                       const std::function<bool()>& interrupted) {
  EngineOptions options;
  options.in_process = run.in_process;
  options.progress = false;
  options.interrupted = interrupted;
  ASAP_ASSIGN(const auto engine, make_engine(config_of(golden, run), platform, options));
  std::vector<EngineRequest> requests;
  for (const GoldenCase& c : golden.cases) {
    EngineRequest request;
    request.id = "verify";
    request.prompt = c.prompt;
    request.sampling.max_tokens = static_cast<int>(c.greedy.size());
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    request.sampling.want_logits = true;
    requests.push_back(std::move(request));
  }
  return run_requests(*engine, std::move(requests), interrupted);
}

// Keeps the larger; a NaN stays.
void raise(double* worst, double value) {
  if (!std::isnan(*worst) && !(value <= *worst)) *worst = value;
}

}  // namespace

std::string VerifyRun::geometry() const {
  return fmt::format("{} D{} T{} E{}", in_process ? "in process" : "processes", groups, ranks,
                     expert_ranks);
}

std::vector<VerifyRun> verify_runs(const Golden& golden, const ModelSpec& spec) {
  const int ranks = tensor_parallel_of(spec);
  const auto experts = [&](int wanted) { return std::min(wanted, spec.experts); };
  std::vector<VerifyRun> out;
  const auto add = [&](const char* ops, const char* dtype) {
    out.push_back({ops, dtype, true, 1, 1, 1});
    out.push_back({ops, dtype, false, 2, ranks, experts(2)});
    out.push_back({ops, dtype, false, 1, ranks, experts(3)});
  };
  add("ref", "float32");
  for (const std::string& file : golden.alt_configs) {
    out.push_back({"ref", "float32", true, 1, 1, 1, file});
  }
  add("cpu", "float32");
  add("cpu", "bfloat16");
  return out;
}

VerifyOutcome judge(const Golden& golden, Precision precision, const std::vector<Answer>& answers) {
  CHECK(answers.size() == golden.cases.size());
  const GoldenLimits& limits = golden.limits(precision);
  VerifyOutcome out;
  std::string tokens;
  for (size_t i = 0; i < answers.size(); ++i) {
    const GoldenCase& c = golden.cases[i];
    const Answer& answer = answers[i];
    if (answer.logits.size() != c.logits.size()) {
      out.problem = fmt::format("{} logits, expected {}", answer.logits.size(), c.logits.size());
      return out;
    }
    raise(&out.logits_error, relative_error(answer.logits, c.logits));
    raise(&out.logits_rms_error, rms_error(answer.logits, c.logits));
    const size_t required = c.required(precision);
    out.greedy_required += required;
    out.greedy_total += c.greedy.size();
    for (size_t step = 0; step < c.greedy.size(); ++step) {
      const bool equal = step < answer.tokens.size() && answer.tokens[step] == c.greedy[step];
      out.greedy_equal += equal ? 1 : 0;
      if (equal || step >= required || !tokens.empty()) continue;
      tokens =
          fmt::format("prompt of {} tokens: generated token {} is {}, expected {}", c.prompt.size(),
                      step, step < answer.tokens.size() ? answer.tokens[step] : -1, c.greedy[step]);
    }
  }
  if (!(out.logits_error <= limits.logits_rel)) {
    out.problem = fmt::format("logits error {:.3g} > {:.3g}", out.logits_error, limits.logits_rel);
  } else if (!(out.logits_rms_error <= limits.logits_rms_rel)) {
    out.problem = fmt::format("rms logits error {:.3g} > {:.3g}", out.logits_rms_error,
                              limits.logits_rms_rel);
  } else {
    out.problem = tokens;
  }
  return out;
}

VerifyOutcome verify(const Golden& golden, const VerifyRun& run, const Platform& platform,
                     const std::function<bool()>& interrupted) {
  const auto answers = answers_of(golden, run, platform, interrupted);
  if (answers) return judge(golden, run.precision(), *answers);
  VerifyOutcome out;
  out.logits_error = out.logits_rms_error = NAN;
  out.problem = answers.error().message;
  return out;
}

}  // namespace asap
