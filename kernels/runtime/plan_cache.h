// Plans that were made before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>

#include "common/mutex.h"
#include "kernels/runtime/planner.h"

namespace scanserve {

// Least recently used plans go first. The key is the bound call and the implementation asked for,
// never load or neighbours, so a cached plan is the plan that would be made now. Packed calls
// (cu_seqlens) are planned afresh each time. Thread-safe.
class PlanCache {
 public:
  // Holds at most `capacity_bytes` of host memory in plans and keys; 0 holds none.
  PlanCache(const DeviceCaps& caps, size_t capacity_bytes)
      : caps_(caps), capacity_bytes_(capacity_bytes) {}

  struct Stats {
    uint64_t hits = 0;
    uint64_t misses = 0;
    size_t size = 0;
    size_t bytes = 0;
  };

  // As PlanCall; failures are not kept.
  absl::StatusOr<PlannedCall> Get(const BoundOp& bound, absl::string_view implementation);

  Stats GetStats() const;

 private:
  struct Entry {
    std::string key;
    PlannedCall planned;
    size_t bytes = 0;
  };

  void Keep(std::string key, const PlannedCall& planned);

  const DeviceCaps caps_;
  const size_t capacity_bytes_;
  mutable Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> index_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t hits_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t misses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace scanserve
