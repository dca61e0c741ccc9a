// Crash reports: what an instance knew about a worker at the moment it was fenced, in a folder of
// its own, for whoever looks for the reason afterwards.
//
//   report.json  who died, how and at which epoch; every worker's state and what it waits for; the
//                flags of all windows; batches and items in flight; the configuration
//   trace.json   the last events of every agent (Chrome/Perfetto)
//   log.txt      the last lines of the log
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "asap/base/result.h"
#include "asap/runtime/control.h"

namespace asap {

struct CrashFacts {
  std::string who;        // "attention g1 t0"
  std::string cause;      // "pid 7 was killed by signal 9 (Killed)"
  uint64_t epoch = 0;     // that ended
  int deaths = 0;         // that count against --max-restarts
  std::string in_flight;  // the scheduler's batches, a line each
  std::vector<int> pids;  // [devices] 0: none
};

// The folder for reports: `wanted`, or "crash" in the user's runtime folder
// (XDG_RUNTIME_DIR/asap, else asap-UID among the temporary files). Made if it is not there, closed
// to others. Errors: invalid (it cannot be made, or belongs to somebody else).
Result<std::string> crash_folder(const std::string& wanted);

// Writes a report into a new folder in `folder`, and removes the oldest beyond `keep`. `windows`:
// descriptors by device. Its path.
Result<std::string> write_crash_report(const std::string& folder, const CrashFacts& facts,
                                       Control& control, const std::vector<int>& windows,
                                       int keep = 20);

// From now on the last lines of the log are kept for reports.
void keep_log_tail();

}  // namespace asap
