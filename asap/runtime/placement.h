// Placement: which cores, and so which NUMA node's memory, each device uses (--cpu-bind).
//
// A worker binds itself before it loads: its threads inherit the binding, and weights come to lie
// in the node whose cores touch them first. A device bound to a node still shares the node's cores
// with the other devices there, so that it uses those of devices that wait; only a list names cores
// for one device alone. One hardware thread of a core counts: the kernels fill its multipliers.
#pragma once

#include <string>
#include <vector>

#include "asap/base/result.h"
#include "asap/wire/geometry.h"

namespace asap {

// The cores that this process may use, by hwloc.
class Topology {
 public:
  struct Node {
    std::vector<int> cpus;  // numbers of the system, ascending; SMT siblings too
    int cores = 0;          // of which at least one hardware thread may be used
  };

  // Never empty: a system that tells nothing is one node.
  static Topology system();
  // As hwloc describes machines, "numa:2 core:8 pu:2", to test with.
  static Result<Topology> synthetic(const std::string& description);

  const std::vector<Node>& nodes() const { return nodes_; }
  int cores() const;

 private:
  std::vector<Node> nodes_;
};

struct Placement {
  struct Device {
    std::vector<int> cpus;   // empty: not bound
    std::vector<int> nodes;  // of those cpus
    bool own = false;        // named for this device: one thread on each
    int threads = 0;         // by default; 0: the plan's
  };
  std::vector<Device> devices;  // by device; the front, 0, is never bound

  // One line for the log.
  std::string describe(const Geometry& geometry) const;
};

// `bind`: "auto": on several nodes each device gets one, or several if there are more nodes than
// devices; ranks of a group stay together where the cores allow it. On one node nothing is bound.
// "nobind". Or lists of cores for attention ranks, group by group, then expert ranks, as
// VLLM_CPU_OMP_THREADS_BIND has them: "0-7|8-15|16,18". Errors: invalid (a list that is none, names
// a core that this process may not use, or too few or too many lists).
Result<Placement> place_devices(const std::string& bind, const Topology& topology,
                                const Geometry& geometry);
// The form of `bind` alone.
Status check_cpu_bind(const std::string& bind);

// Binds the calling thread, and what it starts from now on. False if the system refused.
bool bind_to(const Placement::Device& device);

}  // namespace asap
