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
// never load or neighbours, so a cached plan is the plan that would be made now. Thread-safe.
class PlanCache {
 public:
  // Holds at most `capacity` plans; 0 holds none.
  PlanCache(const DeviceCaps& caps, size_t capacity) : caps_(caps), capacity_(capacity) {}

  struct Stats {
    uint64_t hits = 0;
    uint64_t misses = 0;
    size_t size = 0;
  };

  // As PlanCall; failures are not kept.
  absl::StatusOr<PlannedCall> Get(const BoundOp& bound, absl::string_view implementation);

  Stats GetStats() const;

 private:
  using Entry = std::pair<std::string, PlannedCall>;

  const DeviceCaps caps_;
  const size_t capacity_;
  mutable Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> index_ ABSL_GUARDED_BY(mutex_);
  uint64_t hits_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t misses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace scanserve
