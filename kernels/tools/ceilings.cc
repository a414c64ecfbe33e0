#include "kernels/tools/ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "kernels/runtime/memory_pool.h"

// Before foreach_target.h.
#include "kernels/common/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/tools/ceilings.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/common/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace scanserve {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Chains of multiply-adds side by side: enough to hide the latency of one, few enough for
// registers.
constexpr int kChains = 12;

// Returns the number of multiply-adds; `sink` keeps them from being optimised away.
double RunFma(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> chain[kChains];
  for (int i = 0; i < kChains; ++i) chain[i] = hn::Set(d, static_cast<float>(i));
  const auto factor = hn::Set(d, 0.999f);
  const auto term = hn::Set(d, 0.1f);
  for (int64_t r = 0; r < rounds; ++r) {
    HWY_UNROLL(12)
    for (int i = 0; i < kChains; ++i) chain[i] = hn::MulAdd(chain[i], factor, term);
  }
  for (int i = 1; i < kChains; ++i) chain[0] = hn::Add(chain[0], chain[i]);
  *sink = hn::GetLane(chain[0]);
  return static_cast<double>(rounds) * kChains * static_cast<double>(hn::Lanes(d));
}

// out[i] = 2^in[i]. `size` is a multiple of four vectors.
void RunExp(const float* in, float* out, int64_t size) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < size; i += 4 * lanes) {
    const auto x0 = vector_math::Exp2(d, hn::Load(d, in + i));
    const auto x1 = vector_math::Exp2(d, hn::Load(d, in + i + lanes));
    const auto x2 = vector_math::Exp2(d, hn::Load(d, in + i + 2 * lanes));
    const auto x3 = vector_math::Exp2(d, hn::Load(d, in + i + 3 * lanes));
    hn::Store(x0, d, out + i);
    hn::Store(x1, d, out + i + lanes);
    hn::Store(x2, d, out + i + 2 * lanes);
    hn::Store(x3, d, out + i + 3 * lanes);
  }
}

// Past the caches on the way out, which saves reading the destination.
void RunCopy(const float* in, float* out, int64_t size) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < size; i += lanes) hn::Stream(hn::Load(d, in + i), d, out + i);
  hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace scanserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace scanserve {
namespace {

HWY_EXPORT(RunFma);
HWY_EXPORT(RunExp);
HWY_EXPORT(RunCopy);

constexpr int64_t kFmaRounds = 200'000;
constexpr int64_t kExpSize = 2048;  // both arrays fit into a first-level cache
constexpr int64_t kExpRounds = 1000;
constexpr int64_t kCopySize = int64_t{16} << 20;
constexpr int64_t kCopyPart = int64_t{1} << 18;
// Tasks per thread, so that a thread that is held up does not hold up all.
constexpr int64_t kTasks = 4;

template <class F>
double SecondsOf(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

// Memory with huge pages where the system has them.
struct CeilingMeter::Buffers {
  std::unique_ptr<MemorySource> source = HostMemorySource();
  float* from = Allocate();
  float* to = Allocate();

  Buffers() = default;
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers() {
    source->Free(from, kBytes);
    source->Free(to, kBytes);
  }

 private:
  static constexpr size_t kBytes = kCopySize * sizeof(float);
  float* Allocate() {
    auto* data = static_cast<float*>(source->Allocate(kBytes));
    std::fill_n(data, kCopySize, 0.5f);
    return data;
  }
};

CeilingMeter::CeilingMeter(ThreadArena& arena)
    : arena_(arena), buffers_(std::make_unique<Buffers>()) {}

CeilingMeter::~CeilingMeter() = default;

Ceilings CeilingMeter::Measure() {
  const int64_t tasks = arena_.num_threads() * kTasks;
  Ceilings result;
  arena_.Execute([&] {
    double slots = 0;
    double seconds = SecondsOf([&] {
      ParallelFor(tasks, [&](int64_t i) {
        float sink = 0;
        const double done = HWY_DYNAMIC_DISPATCH(RunFma)(kFmaRounds, &sink);
        if (i == 0 && sink != 0) slots = done * static_cast<double>(tasks);
      });
    });
    result.fma_slots_per_s = slots / seconds;
    seconds = SecondsOf([&] {
      ParallelFor(tasks, [&](int64_t i) {
        const float* from = buffers_->from + i * kExpSize;
        float* to = buffers_->to + i * kExpSize;
        for (int64_t r = 0; r < kExpRounds; ++r) HWY_DYNAMIC_DISPATCH(RunExp)(from, to, kExpSize);
      });
    });
    result.exps_per_s = static_cast<double>(tasks * kExpRounds * kExpSize) / seconds;
    seconds = SecondsOf([&] {
      ParallelFor(kCopySize / kCopyPart, [&](int64_t i) {
        HWY_DYNAMIC_DISPATCH(RunCopy)
        (buffers_->from + i * kCopyPart, buffers_->to + i * kCopyPart, kCopyPart);
      });
    });
    result.copy_bytes_per_s = static_cast<double>(2 * kCopySize * sizeof(float)) / seconds;
  });
  return result;
}

Ceilings Measure(ThreadArena& arena) {
  CeilingMeter meter(arena);
  Ceilings best;
  for (int i = 0; i < 10; ++i) best = Best(best, meter.Measure());
  return best;
}

Ceilings Best(const Ceilings& a, const Ceilings& b) {
  return {std::max(a.fma_slots_per_s, b.fma_slots_per_s), std::max(a.exps_per_s, b.exps_per_s),
          std::max(a.copy_bytes_per_s, b.copy_bytes_per_s)};
}

double FloorSeconds(const Work& work, const Ceilings& ceilings) {
  return std::max({work.fma_slots / ceilings.fma_slots_per_s, work.exps / ceilings.exps_per_s,
                   work.bytes / ceilings.copy_bytes_per_s});
}

}  // namespace scanserve
#endif  // HWY_ONCE
