#include "asap/runtime/placement.h"

#include <hwloc.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <numeric>
#include <set>

#include "asap/base/check.h"
#include "asap/runtime/runner.h"

namespace asap {

namespace {

constexpr int kMostCpus = 1 << 16;
using CpuLists = std::vector<std::vector<int>>;

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Handle = std::unique_ptr<hwloc_topology, Destroy>;

// The hardware threads of `set` that are in the topology's allowed set.
std::vector<int> numbers(hwloc_topology_t topology, hwloc_const_cpuset_t set) {
  std::vector<int> out;
  const hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(topology);
  for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu)) {
    if (hwloc_bitmap_isset(allowed, static_cast<unsigned>(cpu)) != 0) out.push_back(cpu);
  }
  return out;
}

std::vector<Topology::Node> nodes_of(hwloc_topology_t topology, const std::vector<int>& usable) {
  const std::set<int> mine(usable.begin(), usable.end());
  std::vector<Topology::Node> out;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    Topology::Node found;
    for (const int cpu : numbers(topology, node->cpuset)) {
      if (mine.contains(cpu)) found.cpus.push_back(cpu);
    }
    for (hwloc_obj_t core = nullptr;
         (core = hwloc_get_next_obj_inside_cpuset_by_type(topology, node->cpuset, HWLOC_OBJ_CORE,
                                                          core)) != nullptr;) {
      const std::vector<int> threads = numbers(topology, core->cpuset);
      found.cores +=
          std::any_of(threads.begin(), threads.end(), [&](int cpu) { return mine.contains(cpu); });
    }
    if (found.cores == 0) found.cores = static_cast<int>(found.cpus.size());  // cores unknown
    if (!found.cpus.empty()) out.push_back(std::move(found));  // memory without cores: none
  }
  return out;
}

// "0-3,8": ascending, each once.
Result<std::vector<int>> parse_cpus(const std::string& text) {
  std::set<int> out;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](int* value) {
    const auto [next, error] = std::from_chars(at, end, *value);
    at = next;
    return error == std::errc() && *value >= 0 && *value < kMostCpus;
  };
  for (bool more = true; more;) {
    int first = 0;
    bool fine = number(&first);
    int last = first;
    if (fine && at < end && *at == '-') {
      ++at;
      fine = number(&last) && last >= first;
    }
    more = fine && at < end && *at == ',';
    if (!fine || (at < end && !more)) {
      return fail(Code::invalid, "--cpu-bind: \"{}\" is no list of cores such as 0-3,8", text);
    }
    for (int cpu = first; cpu <= last; ++cpu) out.insert(cpu);
    if (more) ++at;
  }
  return std::vector<int>(out.begin(), out.end());
}

Result<CpuLists> parse_lists(const std::string& bind) {
  CpuLists out;
  for (size_t begin = 0; begin <= bind.size();) {
    const size_t end = std::min(bind.find('|', begin), bind.size());
    ASAP_ASSIGN(std::vector<int> cpus, parse_cpus(bind.substr(begin, end - begin)));
    out.push_back(std::move(cpus));
    begin = end + 1;
  }
  return out;
}

bool is_list(const std::string& bind) {
  return bind != "auto" && bind != "nobind";
}

// Devices that belong together: the ranks of a group, in lockstep with the experts in their
// processes; an expert rank alone.
std::vector<std::vector<int>> units_of(const Geometry& g) {
  std::vector<std::vector<int>> out;
  for (int group = 0; group < g.groups; ++group) {
    out.emplace_back();
    for (int t = 0; t < g.ranks; ++t) out.back().push_back(attention_device(g, group, t));
  }
  for (int e = 0; e < g.expert_ranks && !g.lockstep; ++e) out.push_back({expert_device(g, e)});
  return out;
}

void give_nodes(const Topology& topology, std::vector<int> nodes, Placement::Device* device) {
  for (const int node : nodes) {
    const auto& cpus = topology.nodes()[static_cast<size_t>(node)].cpus;
    device->cpus.insert(device->cpus.end(), cpus.begin(), cpus.end());
    device->threads += topology.nodes()[static_cast<size_t>(node)].cores;  // until it is known who
  }
  device->nodes = std::move(nodes);
}

// The node that is least full once `count` more devices are there; of equals the first.
size_t roomiest(const Topology& topology, const std::vector<int>& placed, int count) {
  size_t best = 0;
  for (size_t node = 1; node < placed.size(); ++node) {
    const int64_t mine = int64_t{placed[node] + count} * topology.nodes()[best].cores;
    const int64_t others = int64_t{placed[best] + count} * topology.nodes()[node].cores;
    if (mine < others) best = node;
  }
  return best;
}

void place_on_nodes(const Topology& topology, const Geometry& g, Placement* out) {
  const auto units = units_of(g);
  const auto nodes = static_cast<int>(topology.nodes().size());
  int devices = 0;
  for (const auto& unit : units) devices += static_cast<int>(unit.size());
  std::vector<int> placed(topology.nodes().size(), 0);  // devices on a node
  int number = 0;
  for (const auto& unit : units) {
    const auto size = static_cast<int>(unit.size());
    // A group that a node's share of the devices has no room for is spread.
    const bool together = size * nodes <= devices;
    for (size_t i = 0; i < unit.size(); ++i, ++number) {
      Placement::Device& device = out->devices[static_cast<size_t>(unit[i])];
      if (devices < nodes) {
        std::vector<int> own(
            static_cast<size_t>((number + 1) * nodes / devices - number * nodes / devices));
        std::iota(own.begin(), own.end(), number * nodes / devices);
        give_nodes(topology, std::move(own), &device);
        continue;
      }
      const size_t node =
          together && i > 0
              ? static_cast<size_t>(out->devices[static_cast<size_t>(unit[0])].nodes.front())
              : roomiest(topology, placed, together ? size : 1);
      ++placed[node];
      give_nodes(topology, {static_cast<int>(node)}, &device);
    }
  }
  // Twice an even share of the node, as of the machine where nothing is bound (make_plan).
  for (Placement::Device& device : out->devices) {
    if (device.nodes.size() != 1) continue;
    const int here = placed[static_cast<size_t>(device.nodes.front())];
    device.threads = std::clamp(2 * device.threads / std::max(1, here), 1, device.threads);
  }
}

Status place_by_lists(const CpuLists& lists, const Topology& topology, const Geometry& g,
                      Placement* out) {
  size_t next = 0;
  std::vector<int> devices;
  for (const auto& unit : units_of(g)) devices.insert(devices.end(), unit.begin(), unit.end());
  if (lists.size() != devices.size()) {
    return fail(
        Code::invalid,
        "--cpu-bind has {} lists of cores for {} devices; give one for each, with | between "
        "them: attention ranks first, then expert ranks",
        lists.size(), devices.size());
  }
  for (const int index : devices) {
    Placement::Device& device = out->devices[static_cast<size_t>(index)];
    device.cpus = lists[next++];
    device.own = true;
    device.threads = static_cast<int>(device.cpus.size());
    std::set<int> nodes;
    for (const int cpu : device.cpus) {
      int node = 0;
      for (const Topology::Node& one : topology.nodes()) {
        if (std::binary_search(one.cpus.begin(), one.cpus.end(), cpu)) break;
        ++node;
      }
      if (node == static_cast<int>(topology.nodes().size())) {
        return fail(Code::invalid, "--cpu-bind: this process may not use core {}", cpu);
      }
      nodes.insert(node);
    }
    device.nodes.assign(nodes.begin(), nodes.end());
  }
  return {};
}

// 0-3,8
std::string shown(const std::vector<int>& cpus) {
  std::string out;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    out += fmt::format("{}{}", out.empty() ? "" : ",", cpus[i]);
    if (end > i + 1) out += fmt::format("-{}", cpus[end - 1]);
    i = end;
  }
  return out;
}

}  // namespace

Topology Topology::system() {
  Topology out;
  const std::vector<int> usable = available_cpus();
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) == 0) {
    const Handle handle(raw);
    if (hwloc_topology_load(raw) == 0) out.nodes_ = nodes_of(raw, usable);
  }
  size_t found = 0;
  for (const Node& node : out.nodes_) found += node.cpus.size();
  if (found != usable.size()) out.nodes_ = {{usable, static_cast<int>(usable.size())}};
  return out;
}

Result<Topology> Topology::synthetic(const std::string& description) {
  hwloc_topology_t raw = nullptr;
  CHECK(hwloc_topology_init(&raw) == 0, "hwloc does not start");
  const Handle handle(raw);
  if (hwloc_topology_set_synthetic(raw, description.c_str()) != 0 ||
      hwloc_topology_load(raw) != 0) {
    return fail(Code::invalid, "\"{}\" describes no machine to hwloc", description);
  }
  Topology out;
  out.nodes_ = nodes_of(raw, numbers(raw, hwloc_topology_get_allowed_cpuset(raw)));
  return out;
}

int Topology::cores() const {
  return std::accumulate(nodes_.begin(), nodes_.end(), 0,
                         [](int sum, const Node& node) { return sum + node.cores; });
}

std::string Placement::describe(const Geometry& geometry) const {
  std::string out;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].cpus.empty()) continue;
    out += fmt::format("{}{} cores {} (node {})", out.empty() ? "" : "; ",
                       device_name(geometry, static_cast<int>(i)), shown(devices[i].cpus),
                       shown(devices[i].nodes));
  }
  return out.empty() ? "devices are not bound: their threads run on any core" : out;
}

Status check_cpu_bind(const std::string& bind) {
  if (is_list(bind)) ASAP_TRY(parse_lists(bind));
  return {};
}

Result<Placement> place_devices(const std::string& bind, const Topology& topology,
                                const Geometry& geometry) {
  Placement out;
  out.devices.resize(static_cast<size_t>(geometry.devices()));
  if (is_list(bind)) {
    ASAP_ASSIGN(const CpuLists lists, parse_lists(bind));
    ASAP_TRY(place_by_lists(lists, topology, geometry, &out));
  } else if (bind == "auto" && topology.nodes().size() > 1) {
    place_on_nodes(topology, geometry, &out);
  }
  return out;
}

bool bind_to(const Placement::Device& device) {
  if (device.cpus.empty()) return true;
  return pin_thread(device.cpus);
}

}  // namespace asap
