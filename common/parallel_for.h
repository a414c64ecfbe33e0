// The only door to the task scheduler (oneTBB).
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"

namespace scanserve {

// A fixed number of threads that run parallel loops. Several callers may use one arena at once;
// their loops share its threads.
class ThreadArena {
 public:
  // `num_threads` counts the calling thread; 0 means one per core that this process may run on.
  explicit ThreadArena(int num_threads);
  ~ThreadArena();
  ThreadArena(const ThreadArena&) = delete;
  ThreadArena& operator=(const ThreadArena&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls `body` in the calling thread; every ParallelFor in it runs on this arena.
  void Execute(absl::FunctionRef<void()> body);

 private:
  class Impl;
  int num_threads_;
  std::unique_ptr<Impl> impl_;
};

// Calls body(i) once for each i in [0, n), in any order, possibly at the same time; returns when
// all calls have. Runs on the arena of the enclosing ThreadArena::Execute. What body(i) computes
// must depend on i alone, never on the thread that runs it.
void ParallelFor(int64_t n, absl::FunctionRef<void(int64_t)> body);

}  // namespace scanserve
