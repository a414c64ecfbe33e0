// A clock that stands still until a test moves it.
#pragma once

#include <vector>

#include "common/clock.h"
#include "common/mutex.h"

namespace scanserve {

// Advance wakes everybody who waits on this clock. Thread-safe.
class FakeClock final : public Clock {
 public:
  TimePoint Now() const override {
    MutexLock lock(mutex_);
    return now_;
  }

  void Wait(CondVar& condition, Mutex& mutex, TimePoint until) const override {
    {
      MutexLock lock(mutex_);
      if (until <= now_) return;
      waiters_.push_back({&condition, &mutex});
    }
    condition.wait(mutex);
    MutexLock lock(mutex_);
    for (auto it = waiters_.begin(); it != waiters_.end(); ++it) {
      if (it->condition != &condition) continue;
      waiters_.erase(it);
      return;
    }
  }

  void Advance(Nanoseconds by) {
    std::vector<Waiter> waiters;
    {
      MutexLock lock(mutex_);
      now_ += by;
      waiters = waiters_;
    }
    for (const Waiter& waiter : waiters) {
      // Whoever has registered holds this mutex until it really waits.
      MutexLock lock(*waiter.mutex);
      waiter.condition->notify_all();
    }
  }

 private:
  struct Waiter {
    CondVar* condition;
    Mutex* mutex;
  };
  mutable Mutex mutex_;
  TimePoint now_ ABSL_GUARDED_BY(mutex_){std::chrono::hours(1)};
  mutable std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace scanserve
