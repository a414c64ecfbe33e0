// Counts the calls in progress, so that a shutdown can wait for them and for nothing else.
#pragma once

#include <chrono>

#include "common/mutex.h"

namespace scanserve {

// Thread-safe.
class CallGate {
 public:
  // False once the gate is closed. Otherwise Leave must follow.
  bool Enter() {
    const MutexLock lock(mutex_);
    if (closed_) return false;
    ++inside_;
    return true;
  }

  void Leave() {
    const MutexLock lock(mutex_);
    --inside_;
    if (inside_ == 0) empty_.notify_all();
  }

  // Nobody enters any more.
  void Close() {
    const MutexLock lock(mutex_);
    closed_ = true;
  }

  // Returns when everybody has left, or after `grace`.
  void Wait(std::chrono::milliseconds grace) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const MutexLock lock(mutex_);
    empty_.wait_for(mutex_, grace, [this] { return inside_ == 0; });
  }

 private:
  Mutex mutex_;
  CondVar empty_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace scanserve
