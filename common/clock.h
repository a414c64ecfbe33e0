// Monotonic time behind an interface, so that queues and deadlines are tested without sleeping.
#pragma once

#include <chrono>

#include "common/mutex.h"

namespace scanserve {

using TimePoint = std::chrono::steady_clock::time_point;
using Nanoseconds = std::chrono::nanoseconds;

inline constexpr TimePoint kNever = TimePoint::max();

class Clock {
 public:
  virtual ~Clock() = default;
  // Thread-safe.
  virtual TimePoint Now() const = 0;
  // Waits, with `mutex` released, until `condition` is notified or `until` has come. May return
  // earlier. Thread-safe.
  virtual void Wait(CondVar& condition, Mutex& mutex, TimePoint until) const = 0;
};

class SteadyClock final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
  void Wait(CondVar& condition, Mutex& mutex, TimePoint until) const override {
    // The largest time points overflow inside wait_until.
    if (until == kNever) {
      condition.wait(mutex);
    } else {
      condition.wait_until(mutex, until);
    }
  }
};

inline double Seconds(Nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace scanserve
