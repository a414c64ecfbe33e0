// The same door with std::thread behind it, for builds with the thread sanitizer, which cannot see
// into the system's uninstrumented oneTBB and reports races that are none.
#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "common/parallel_for.h"

namespace scanserve {
namespace {

// Of the arena that the current thread executes in; helpers run nested loops alone.
thread_local int arena_threads = 1;

}  // namespace

class ThreadArena::Impl {};

ThreadArena::ThreadArena(int num_threads)
    : num_threads_(num_threads > 0 ? num_threads
                                   : std::max(1, int(std::thread::hardware_concurrency()))) {}

ThreadArena::~ThreadArena() = default;

void ThreadArena::Execute(absl::FunctionRef<void()> body) {
  const int outer = std::exchange(arena_threads, num_threads_);
  body();
  arena_threads = outer;
}

void ParallelFor(int64_t n, absl::FunctionRef<void(int64_t)> body) {
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t i = next++; i < n; i = next++) body(i);
  };
  std::vector<std::thread> helpers;
  for (int64_t i = 1; i < std::min<int64_t>(n, arena_threads); ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace scanserve
