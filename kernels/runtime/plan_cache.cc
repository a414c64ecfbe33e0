#include "kernels/runtime/plan_cache.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/spec/op_case.h"

namespace scanserve {
namespace {

// The case string has sizes, attributes, dtypes and which tensors are present in which form;
// what else a plan may depend on is which outputs are wanted and which upstream gradients there
// are.
std::string KeyOf(const BoundOp& bound, absl::string_view implementation) {
  std::string key = CaseString(bound, implementation, "");
  for (const std::string& name : bound.output_names) absl::StrAppend(&key, ">", name);
  for (const Slot slot : bound.inputs) {
    if (slot.is_gradient) absl::StrAppend(&key, "<", slot.row);
  }
  return key;
}

}  // namespace

absl::StatusOr<PlannedCall> PlanCache::Get(const BoundOp& bound, absl::string_view implementation) {
  // The cuts of a pack hardly ever repeat.
  if (!bound.cu_seqlens.empty()) return PlanCall(bound, caps_, implementation);
  std::string key = KeyOf(bound, implementation);
  {
    MutexLock lock(mutex_);
    if (const auto it = index_.find(key); it != index_.end()) {
      ++hits_;
      entries_.splice(entries_.begin(), entries_, it->second);
      return it->second->planned;
    }
    ++misses_;
  }
  // Planned without the lock: two threads may make the same plan at once, and both are right.
  SCANSERVE_ASSIGN_OR_RETURN(PlannedCall planned, PlanCall(bound, caps_, implementation));
  Keep(std::move(key), planned);
  return planned;
}

void PlanCache::Keep(std::string key, const PlannedCall& planned) {
  const size_t bytes = 2 * key.capacity() + planned.plan->HostBytes();
  MutexLock lock(mutex_);
  if (index_.contains(key)) return;
  bytes_ += bytes;
  entries_.push_front({key, planned, bytes});
  index_.emplace(std::move(key), entries_.begin());
  while (bytes_ > capacity_bytes_) {
    bytes_ -= entries_.back().bytes;
    index_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

PlanCache::Stats PlanCache::GetStats() const {
  MutexLock lock(mutex_);
  return {hits_, misses_, entries_.size(), bytes_};
}

}  // namespace scanserve
