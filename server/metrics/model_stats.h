// The counters that ModelStatistics reports, per model.
#pragma once

#include <memory>

#include "absl/container/flat_hash_map.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "kernels/spec/catalog.h"
#include "server/core.h"

namespace scanserve {

// Durations of one successful call.
struct CallTimes {
  Nanoseconds total{0};
  Nanoseconds queue{0};
  Nanoseconds compute_input{0};
  Nanoseconds compute_infer{0};
  Nanoseconds compute_output{0};
};

// Thread-safe.
class ModelStatsTable {
 public:
  explicit ModelStatsTable(const Catalog& catalog);

  // `batch_size` elements were computed by one run on the device.
  void RecordSuccess(const Model& model, uint64_t batch_size, const CallTimes& times);
  void RecordFailure(const Model& model, Nanoseconds total);

  // All zero for a model that is not in the catalog.
  ModelStats StatsOf(const Model& model) const;

 private:
  struct Entry {
    mutable Mutex mutex;
    ModelStats stats ABSL_GUARDED_BY(mutex);
  };
  absl::flat_hash_map<const Model*, std::unique_ptr<Entry>> entries_;
};

}  // namespace scanserve
