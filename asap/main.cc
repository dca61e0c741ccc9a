// The only place that names a concrete link or op table.
#include "asap/cli/cli.h"
#include "asap/transport/link_loop.h"
#include "asap/transport/link_shm.h"

int main(int argc, char** argv) {
  asap::Platform platform;
  platform.make_ops = [](const std::string& name, asap::Team& team) {
    return name == "ref" ? asap::make_ops_ref() : asap::make_ops_cpu(team);
  };
  platform.make_process_link = asap::make_link_shm;
  platform.make_local_link = [](const asap::Geometry& geometry) {
    return asap::make_link_loop(geometry, {});
  };
  return asap::run_cli(argc, argv, platform);
}
