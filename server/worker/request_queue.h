// The order in which requests get the device.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "common/clock.h"

namespace scanserve {

class Request;

// Priority levels: 1 is served first, kLowestPriority last; 0, and anything beyond the lowest,
// means kDefaultPriority (as in Triton).
inline constexpr uint64_t kDefaultPriority = 8;
inline constexpr uint64_t kLowestPriority = 16;

// A pure data structure: no threads, no clock of its own, not thread-safe. How much may be in it is
// the Admission's business. Requests that have expired or were withdrawn leave at once, wherever
// they stand.
class RequestQueue {
 public:
  // `request` is not in the queue yet. It must not be served after `expires`.
  void Push(std::shared_ptr<Request> request, uint64_t priority, TimePoint expires);

  // The first by level, then by arrival; null when empty.
  std::shared_ptr<Request> Pop();

  // Takes `request` out, wherever it is; null when it is not (or no longer) here.
  std::shared_ptr<Request> Remove(const Request& request);

  // Takes out all that have expired at `now`, the earliest first.
  std::vector<std::shared_ptr<Request>> PopExpired(TimePoint now);

  // When the next one expires; kNever when none does.
  TimePoint NextExpiry() const;

  size_t size() const { return places_.size(); }
  bool empty() const { return places_.empty(); }

 private:
  struct Place {
    uint64_t level;
    std::list<std::shared_ptr<Request>>::iterator position;
    TimePoint expires;
  };

  std::map<uint64_t, std::list<std::shared_ptr<Request>>> levels_;  // none empty
  std::unordered_map<const Request*, Place> places_;
  std::set<std::pair<TimePoint, const Request*>> expiries_;  // those that expire
};

}  // namespace scanserve
