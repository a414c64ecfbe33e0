#include "kernels/runtime/plan_cache.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/spec/op_case.h"

namespace scanserve {
namespace {

// The case string has sizes, attributes, dtypes and which tensors are present in which form;
// what else a plan may depend on is which outputs are wanted, which upstream gradients there are
// and how a pack is cut.
std::string KeyOf(const BoundOp& bound, absl::string_view implementation) {
  std::string key = CaseString(bound, implementation, "");
  for (const std::string& name : bound.output_names) absl::StrAppend(&key, ">", name);
  for (const Slot slot : bound.inputs) {
    if (slot.is_gradient) absl::StrAppend(&key, "<", slot.row);
  }
  for (const int64_t offset : bound.cu_seqlens) absl::StrAppend(&key, "|", offset);
  return key;
}

}  // namespace

absl::StatusOr<PlannedCall> PlanCache::Get(const BoundOp& bound, absl::string_view implementation) {
  std::string key = KeyOf(bound, implementation);
  {
    MutexLock lock(mutex_);
    if (const auto it = index_.find(key); it != index_.end()) {
      ++hits_;
      entries_.splice(entries_.begin(), entries_, it->second);
      return it->second->second;
    }
    ++misses_;
  }
  // Planned without the lock: two threads may make the same plan at once, and both are right.
  SCANSERVE_ASSIGN_OR_RETURN(PlannedCall planned, PlanCall(bound, caps_, implementation));
  MutexLock lock(mutex_);
  if (capacity_ == 0 || index_.contains(key)) return planned;
  entries_.emplace_front(key, planned);
  index_.emplace(std::move(key), entries_.begin());
  if (entries_.size() > capacity_) {
    index_.erase(entries_.back().first);
    entries_.pop_back();
  }
  return planned;
}

PlanCache::Stats PlanCache::GetStats() const {
  MutexLock lock(mutex_);
  return {hits_, misses_, entries_.size()};
}

}  // namespace scanserve
