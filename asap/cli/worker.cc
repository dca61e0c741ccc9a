// asap worker: one device. Its command line says what it is; everything else comes from the front's
// control block.
#include "asap/runtime/worker.h"

#include "asap/cli/commands.h"
#include "asap/cli/options.h"

namespace asap {

std::function<int()> add_worker(CLI::App& app, const Platform& platform) {
  auto role = std::make_shared<WorkerRole>();
  auto name = std::make_shared<std::string>();
  app.add_option("--role", *name, "attention or moe")
      ->required()
      ->check(CLI::IsMember({"attention", "moe", "ffn"}));
  app.add_option("--group", role->group, "Attention: group");
  app.add_option("--tp-rank", role->tp_rank, "Attention: rank in the group");
  app.add_option("--moe-rank", role->moe_rank, "MoE: expert rank");
  return [role, name, &platform] {
    role->attention = *name == "attention";
    const Status status = run_worker(*role, platform);
    return status ? 0 : report(status.error());
  };
}

}  // namespace asap
