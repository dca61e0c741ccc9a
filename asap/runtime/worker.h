// A worker process: one device. It maps the windows it was given, loads its shard, reports, and
// runs its agents.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "asap/base/result.h"
#include "asap/compute/ops.h"
#include "asap/transport/link.h"

namespace asap {

// The concrete parts that main.cc chooses and everything below it only uses.
struct Platform {
  // "cpu" or "ref"; `isa` as in make_ops_cpu.
  std::function<std::unique_ptr<Ops>(const std::string& name, const std::string& isa, Team& team)>
      make_ops;
  // A link between processes over the given windows, or inside this one. `kind`: "onesided", or
  // "p2p", which blocks.
  std::function<Result<std::unique_ptr<Link>>(const std::string& kind, const Geometry&,
                                              const std::vector<int>& fds)>
      make_process_link;
  std::function<std::unique_ptr<Link>(const Geometry&)> make_local_link;
};

struct WorkerRole {
  bool attention = true;  // else "moe"
  int group = 0, tp_rank = 0, moe_rank = 0;
};

// Runs until the front says stop. Errors are also left in the control block, where the front reads
// them.
Status run_worker(const WorkerRole& role, const Platform& platform);

}  // namespace asap
