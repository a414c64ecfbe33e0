#include "server/worker/request_queue.h"

#include <utility>

namespace scanserve {

void RequestQueue::Push(std::shared_ptr<Request> request, uint64_t priority, TimePoint expires) {
  const uint64_t level = priority == 0 || priority > kLowestPriority ? kDefaultPriority : priority;
  const Request* key = request.get();
  std::list<std::shared_ptr<Request>>& line = levels_[level];
  line.push_back(std::move(request));
  places_.emplace(key, Place{level, std::prev(line.end()), expires});
  if (expires != kNever) expiries_.emplace(expires, key);
}

std::shared_ptr<Request> RequestQueue::Pop() {
  if (levels_.empty()) return nullptr;
  return Remove(*levels_.begin()->second.front());
}

std::shared_ptr<Request> RequestQueue::Remove(const Request& request) {
  const auto it = places_.find(&request);
  if (it == places_.end()) return nullptr;
  const Place place = it->second;
  std::shared_ptr<Request> removed = std::move(*place.position);
  const auto line = levels_.find(place.level);
  line->second.erase(place.position);
  if (line->second.empty()) levels_.erase(line);
  expiries_.erase({place.expires, &request});
  places_.erase(it);
  return removed;
}

std::vector<std::shared_ptr<Request>> RequestQueue::PopExpired(TimePoint now) {
  std::vector<std::shared_ptr<Request>> expired;
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    expired.push_back(Remove(*expiries_.begin()->second));
  }
  return expired;
}

TimePoint RequestQueue::NextExpiry() const {
  return expiries_.empty() ? kNever : expiries_.begin()->first;
}

}  // namespace scanserve
