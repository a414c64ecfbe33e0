// What the vector kernels of the fused scan share. Included once per target.
#if defined(SCANSERVE_KERNELS_OPS_SELECTIVE_SCAN_FUSED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SCANSERVE_KERNELS_OPS_SELECTIVE_SCAN_FUSED_INL_H_
#undef SCANSERVE_KERNELS_OPS_SELECTIVE_SCAN_FUSED_INL_H_
#else
#define SCANSERVE_KERNELS_OPS_SELECTIVE_SCAN_FUSED_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/common/cpu/vector_math-inl.h"
#include "kernels/ops/selective_scan/fused.h"

HWY_BEFORE_NAMESPACE();
namespace scanserve::selective_scan {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace vm = scanserve::HWY_NAMESPACE::vector_math;

using D = hn::CappedTag<float, kBlockChannels>;
using V = hn::Vec<D>;
constexpr int kLanes = HWY_LANES(float) < kBlockChannels ? HWY_LANES(float) : kBlockChannels;

// States that are scanned together, in registers.
constexpr int kForwardTile = HWY_MAX_BYTES >= 64 ? 16 : 8;
constexpr int kBackwardTile = 8;

constexpr int64_t kSliceSize = kSliceSteps * kBlockChannels;

// Offsets of a decay's exponent, one per step in turn, that spread the rounding of a decay near 1
// evenly over one unit in the last place. They add up to zero over any 16 steps and leave a decay
// of exactly 1 alone. Without them a constant step size would round alike at every step, an error
// that a long memory multiplies by its length.
constexpr float Offset(int rank) {
  constexpr double kLog2E = 1.4426950408889634;
  return static_cast<float>(((rank + 0.5) / 16 - 0.5) * 0x1p-24 * kLog2E);
}
constexpr float kRoundingOffsets[16] = {
    Offset(0), Offset(8), Offset(4), Offset(12), Offset(2), Offset(10), Offset(6), Offset(14),
    Offset(1), Offset(9), Offset(5), Offset(13), Offset(3), Offset(11), Offset(7), Offset(15)};

// How a tile reads B or C: a number per step and state, the same for all channels ...
struct PerStep {
  const float* data;
  int64_t stride;  // between steps
  HWY_INLINE V operator()(D d, int64_t t, int n, int /*lane*/) const {
    return hn::Set(d, data[t * stride + n]);
  }
};

// ... or a number per channel and state, the same for all steps.
struct Constant {
  const float* data;
  HWY_INLINE V operator()(D d, int64_t /*t*/, int n, int lane) const {
    return hn::Load(d, data + n * kBlockChannels + lane);
  }
};

// Constant projections are rare: they get tiles of at most four states, which saves much code.
constexpr int kConstantTile = 4;

// Calls f(tile, n) with tiles of compile-time size that cover the states [0, dstate).
template <int kLargest, class F>
HWY_INLINE void ForEachTile(const Args<float>& args, const F& f) {
  int64_t n = 0;
  const auto cover = [&](auto tile) HWY_ATTR {
    for (; args.dstate - n >= tile(); n += tile()) f(tile, n);
  };
  if (!args.B.constant && !args.C.constant) {
    if constexpr (kLargest > 8) cover(std::integral_constant<int, kLargest>());
    cover(std::integral_constant<int, 8>());
  }
  cover(std::integral_constant<int, kConstantTile>());
  cover(std::integral_constant<int, 1>());
}

// Lanes [lane, lane + kLanes) of a block whose first `count` channels exist; the others are zero.
HWY_INLINE V LoadChannels(D d, const float* from, int lane, int count) {
  if (HWY_LIKELY(lane + kLanes <= count)) return hn::LoadU(d, from + lane);
  HWY_ALIGN float padded[kLanes] = {};
  for (int i = lane; i < count; ++i) padded[i - lane] = from[i];
  return hn::Load(d, padded);
}

HWY_INLINE void StoreChannels(D d, V v, float* to, int lane, int count) {
  if (HWY_LIKELY(lane + kLanes <= count)) {
    hn::StoreU(v, d, to + lane);
    return;
  }
  HWY_ALIGN float padded[kLanes];
  hn::Store(v, d, padded);
  for (int i = lane; i < count; ++i) to[i] = padded[i - lane];
}

// Where one block's tensors lie for the steps of one slice, and how many there are.
struct Slice {
  int64_t time;  // first step, of batch * seqlen
  int64_t steps;
  int64_t channel;
  int count;       // channels
  int64_t stride;  // dim
  int64_t At(int64_t t) const { return (time + t) * stride + channel; }
};

// Per-step quantities by lanes, [kSliceSteps][16] each.
struct StepInputs {
  HWY_ALIGN float delta[kSliceSize];  // after bias and softplus
  HWY_ALIGN float delta_u[kSliceSize];
};

HWY_INLINE V Bias(D d, const Args<float>& args, const Slice& slice, int lane) {
  return args.delta_bias == nullptr
             ? hn::Zero(d)
             : LoadChannels(d, args.delta_bias + slice.channel, lane, slice.count);
}

inline HWY_NOINLINE void PrepareInputs(const Args<float>& args, const Slice& slice,
                                       StepInputs& out) {
  const D d;
  for (int lane = 0; lane < kBlockChannels; lane += kLanes) {
    const V bias = Bias(d, args, slice, lane);
    for (int64_t t = 0; t < slice.steps; ++t) {
      const V u = LoadChannels(d, args.u + slice.At(t), lane, slice.count);
      V delta = LoadChannels(d, args.delta + slice.At(t), lane, slice.count);
      if (args.delta_bias != nullptr) delta = hn::Add(delta, bias);
      if (args.delta_softplus) delta = vm::Softplus(d, delta);
      delta = vm::Canonical(d, delta);
      hn::Store(delta, d, out.delta + t * kBlockChannels + lane);
      hn::Store(hn::Mul(delta, u), d, out.delta_u + t * kBlockChannels + lane);
    }
  }
}

// Rows that the next slice will read and write, one of each tensor per step. They are asked for
// while this slice is computed, step by step: all at once they would queue up and stall.
struct UpcomingRows {
  const float* tensors[3];
  int64_t stride;
  HWY_INLINE void Prefetch(int64_t t) const {
    for (const float* tensor : tensors) hwy::Prefetch(tensor + t * stride);
  }
};

HWY_INLINE V Decay(D d, V delta, V log_decay, V offset) {
  return vm::Exp2(d, hn::MulAdd(delta, log_decay, offset));
}

// Scans kTile states of one block over the steps of a slice; adds <C, h> to `projected` if
// kProject.
template <int kTile, bool kProject, class FormB, class FormC>
HWY_NOINLINE void ForwardTile(const StepInputs& in, int64_t steps, const float* offsets,
                              const float* log_decay, FormB b, FormC c, float* state,
                              float* projected, UpcomingRows upcoming) {
  const D d;
  for (int lane = 0; lane < kBlockChannels; lane += kLanes) {
    V h[kTile];
    HWY_UNROLL(16)
    for (int n = 0; n < kTile; ++n) h[n] = hn::Load(d, state + n * kBlockChannels + lane);
    for (int64_t t = 0; t < steps; ++t) {
      const V delta = hn::Load(d, in.delta + t * kBlockChannels + lane);
      const V delta_u = hn::Load(d, in.delta_u + t * kBlockChannels + lane);
      const V offset = hn::Set(d, offsets[t]);
      V even = hn::Zero(d);
      V odd = hn::Zero(d);
      if constexpr (kProject) even = hn::Load(d, projected + t * kBlockChannels + lane);
      upcoming.Prefetch(t);
      HWY_UNROLL(16)
      for (int n = 0; n < kTile; ++n) {
        const V decay = Decay(d, delta, hn::Load(d, log_decay + n * kBlockChannels + lane), offset);
        h[n] = hn::MulAdd(decay, h[n], hn::Mul(delta_u, b(d, t, n, lane)));
        if constexpr (kProject) {
          V& sum = n % 2 == 0 ? even : odd;
          sum = hn::MulAdd(h[n], c(d, t, n, lane), sum);
        }
      }
      if constexpr (kProject) {
        hn::Store(hn::Add(even, odd), d, projected + t * kBlockChannels + lane);
      }
    }
    HWY_UNROLL(16)
    for (int n = 0; n < kTile; ++n) hn::Store(h[n], d, state + n * kBlockChannels + lane);
  }
}

// Calls f(form of B, form of C) for a tile of one block, from time step `time` and state n on.
template <int kTile, class F>
HWY_INLINE void WithForms(const FusedCall& call, int64_t block, int64_t group, int64_t time,
                          int64_t n, const F& f) {
  const Args<float>& args = call.args;
  const auto per_step = [&](const Projection<float>& p) HWY_ATTR {
    const int64_t stride = p.groups * args.dstate;
    return PerStep{p.data + time * stride + (p.groups == 1 ? 0 : group) * args.dstate + n, stride};
  };
  if constexpr (kTile <= kConstantTile) {
    const Constant b = {call.ConstantB(block) + n * kBlockChannels};
    const Constant c = {call.ConstantC(block) + n * kBlockChannels};
    if (args.B.constant && args.C.constant) return f(b, c);
    if (args.B.constant) return f(b, per_step(args.C));
    if (args.C.constant) return f(per_step(args.B), c);
  }
  f(per_step(args.B), per_step(args.C));
}

// Scans all states of one block over one slice. `more` says that another slice follows it.
template <bool kProject>
HWY_INLINE void ScanSlice(const FusedCall& call, const StepInputs& in, int64_t block, int64_t group,
                          const Slice& slice, const float* offsets, bool more, float* state,
                          float* projected) {
  const Args<float>& args = call.args;
  const int64_t next = slice.At(slice.steps);
  const UpcomingRows nothing = {{in.delta, in.delta, in.delta}, 0};
  const float* written = kProject ? args.y : args.u;
  const UpcomingRows upcoming =
      more ? UpcomingRows{{args.u + next, args.delta + next, written + next}, slice.stride}
           : nothing;
  ForEachTile<kForwardTile>(args, [&](auto tile, int64_t n) HWY_ATTR {
    WithForms<tile()>(call, block, group, slice.time, n, [&](auto b, auto c) HWY_ATTR {
      ForwardTile<tile(), kProject>(
          in, slice.steps, offsets, call.LogDecay(block) + n * kBlockChannels, b, c,
          state + n * kBlockChannels, projected, n == 0 ? upcoming : nothing);
    });
  });
}

// Moves a block's states between [channel][dstate] and lanes; lanes without a channel are zero.
inline void LoadState(const FusedCall& call, int64_t block, const float* from, float* lanes) {
  const int64_t dstate = call.args.dstate;
  const ChannelBlock& channels = call.schedule.blocks[block];
  std::memset(lanes, 0, sizeof(float) * call.block_size());
  if (from == nullptr) return;
  for (int i = 0; i < channels.count; ++i) {
    const float* row = from + (channels.channel + i) * dstate;
    for (int64_t n = 0; n < dstate; ++n) lanes[n * kBlockChannels + i] = row[n];
  }
}

inline void StoreState(const FusedCall& call, int64_t block, const float* lanes, float* to) {
  const int64_t dstate = call.args.dstate;
  const ChannelBlock& channels = call.schedule.blocks[block];
  for (int i = 0; i < channels.count; ++i) {
    float* row = to + (channels.channel + i) * dstate;
    for (int64_t n = 0; n < dstate; ++n) row[n] = lanes[n * kBlockChannels + i];
  }
}

// The tensor's part that belongs to one sequence, of a tensor [sequences][dim][dstate].
template <typename T>
T* OfSequence(const Args<float>& args, T* states, int64_t sequence) {
  return states == nullptr ? nullptr : states + sequence * args.dim * args.dstate;
}

inline Slice SliceOf(const FusedCall& call, int64_t row, int64_t block, int64_t begin,
                     int64_t end) {
  const ChannelBlock& channels = call.schedule.blocks[block];
  return {row * call.args.seqlen + begin, std::min<int64_t>(kSliceSteps, end - begin),
          channels.channel, channels.count, call.args.dim};
}

}  // namespace HWY_NAMESPACE
}  // namespace scanserve::selective_scan
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
