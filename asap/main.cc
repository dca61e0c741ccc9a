// The only place that names a concrete link or op table.
#include "asap/cli/cli.h"
#include "asap/transport/link_loop.h"
#include "asap/transport/link_p2p.h"
#include "asap/transport/link_shm.h"

int main(int argc, char** argv) {
  asap::Platform platform;
  platform.make_ops = [](const std::string& name, const std::string& isa, asap::Team& team) {
    return name == "ref" ? asap::make_ops_ref() : asap::make_ops_cpu(team, isa);
  };
  platform.make_process_link = [](const std::string& kind, const asap::Geometry& geometry,
                                  const std::vector<int>& fds) {
    auto link = asap::make_link_shm(geometry, fds);
    if (link && kind == "p2p") link = asap::make_link_p2p(geometry, std::move(*link));
    return link;
  };
  platform.make_local_link = [](const asap::Geometry& geometry) {
    return asap::make_link_loop(geometry, {});
  };
  return asap::run_cli(argc, argv, platform);
}
