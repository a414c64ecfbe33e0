#include "server/metrics/model_stats.h"

#include <chrono>

namespace scanserve {
namespace {

void Add(ModelStats::Duration& sum, Nanoseconds duration) {
  ++sum.count;
  sum.ns += static_cast<uint64_t>(duration.count());
}

uint64_t MillisecondsSinceEpoch() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

ModelStatsTable::ModelStatsTable(const Catalog& catalog) {
  for (const std::unique_ptr<const Model>& model : catalog.models()) {
    entries_[model.get()] = std::make_unique<Entry>();
  }
}

void ModelStatsTable::RecordSuccess(const Model& model, uint64_t batch_size,
                                    const CallTimes& times) {
  const auto it = entries_.find(&model);
  if (it == entries_.end()) return;
  MutexLock lock(it->second->mutex);
  ModelStats& stats = it->second->stats;
  stats.last_inference_ms = MillisecondsSinceEpoch();
  stats.inference_count += batch_size;
  ++stats.execution_count;
  Add(stats.success, times.total);
  Add(stats.queue, times.queue);
  Add(stats.compute_input, times.compute_input);
  Add(stats.compute_infer, times.compute_infer);
  Add(stats.compute_output, times.compute_output);
  std::array<ModelStats::Duration, 3>& batch = stats.batches[batch_size];
  Add(batch[0], times.compute_input);
  Add(batch[1], times.compute_infer);
  Add(batch[2], times.compute_output);
}

void ModelStatsTable::RecordFailure(const Model& model, Nanoseconds total) {
  const auto it = entries_.find(&model);
  if (it == entries_.end()) return;
  MutexLock lock(it->second->mutex);
  Add(it->second->stats.fail, total);
}

ModelStats ModelStatsTable::StatsOf(const Model& model) const {
  const auto it = entries_.find(&model);
  if (it == entries_.end()) return {};
  MutexLock lock(it->second->mutex);
  return it->second->stats;
}

}  // namespace scanserve
