#include "common/parallel_for.h"

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

namespace scanserve {

class ThreadArena::Impl {
 public:
  explicit Impl(int num_threads) : arena(num_threads) {}
  tbb::task_arena arena;
};

ThreadArena::ThreadArena(int num_threads)
    : num_threads_(num_threads > 0 ? num_threads : tbb::this_task_arena::max_concurrency()),
      impl_(std::make_unique<Impl>(num_threads_)) {}

ThreadArena::~ThreadArena() = default;

void ThreadArena::Execute(absl::FunctionRef<void()> body) {
  impl_->arena.execute([body] { body(); });
}

void ParallelFor(int64_t n, absl::FunctionRef<void(int64_t)> body) {
  if (n == 1) {
    body(0);
    return;
  }
  tbb::parallel_for(
      tbb::blocked_range<int64_t>(0, n, 1),
      [body](const tbb::blocked_range<int64_t>& range) {
        for (int64_t i = range.begin(); i != range.end(); ++i) body(i);
      },
      tbb::simple_partitioner());
}

}  // namespace scanserve
