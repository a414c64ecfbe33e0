// What the operating system says about this process.
#pragma once

#include <cstdint>

namespace scanserve {

struct ProcessStats {
  double resident_bytes = 0;
  double cpu_seconds = 0;
  double open_fds = 0;
  double max_fds = 0;
  double start_time_seconds = 0;  // since the epoch
};

// Fields that cannot be read stay 0.
ProcessStats ReadProcessStats();

}  // namespace scanserve
