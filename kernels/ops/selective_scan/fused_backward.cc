#include "kernels/ops/selective_scan/fused_kernels.h"

// Before foreach_target.h.
#include "kernels/common/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/selective_scan/fused_backward.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "kernels/ops/selective_scan/fused-inl.h"

HWY_BEFORE_NAMESPACE();
namespace scanserve::selective_scan {
namespace HWY_NAMESPACE {

// What the backward keeps of one block for one slice, [kSliceSteps][16] each.
struct BlockSlice {
  StepInputs in;
  UpcomingRows upcoming;                   // of the slice before this one in time
  HWY_ALIGN float dprojected[kSliceSize];  // gradient of <C, h> + D u
  HWY_ALIGN float projected[kSliceSize];   // <C, h>, only for the gradient of z
  HWY_ALIGN float sum_gb[kSliceSize];      // sum of g B over the states
  HWY_ALIGN float sum_wa[kSliceSize];      // sum of w A log2(e) over the states
};

// Where a tile adds the products whose sum over channels is dB or dC.
struct ProjectionSums {
  float* data;
  int64_t stride;  // between steps, zero for a constant projection
  HWY_INLINE void Add(D d, V x, V y, int64_t t, int n, int lane) const {
    float* at = data + t * stride + n * kBlockChannels + lane;
    hn::Store(hn::MulAdd(x, y, hn::Load(d, at)), d, at);
  }
};

// One tile of the backward: the same for every block of a range.
struct TileTask {
  int64_t steps;
  const float* offsets;
  bool project;  // BlockSlice::projected is wanted
};

// States and decays of one tile, recomputed for the steps of one slice.
template <int kTile>
struct TileStates {
  HWY_ALIGN float h[(kSliceSteps + 1) * kTile * kLanes];  // h[0] is the state before the slice
  HWY_ALIGN float decay[kSliceSteps * kTile * kLanes];
  static constexpr int64_t At(int64_t t, int n) { return (t * kTile + n) * kLanes; }
};

template <int kTile, class FormB>
HWY_INLINE void RecomputeTile(const TileTask& task, const StepInputs& in, int lane,
                              const float* log_decay, const FormB& b, const float* state,
                              TileStates<kTile>& out) {
  const D d;
  V h[kTile];
  HWY_UNROLL(8)
  for (int n = 0; n < kTile; ++n) {
    h[n] = hn::Load(d, state + n * kBlockChannels + lane);
    hn::Store(h[n], d, out.h + out.At(0, n));
  }
  for (int64_t t = 0; t < task.steps; ++t) {
    const V delta = hn::Load(d, in.delta + t * kBlockChannels + lane);
    const V delta_u = hn::Load(d, in.delta_u + t * kBlockChannels + lane);
    const V offset = hn::Set(d, task.offsets[t]);
    HWY_UNROLL(8)
    for (int n = 0; n < kTile; ++n) {
      const V decay = Decay(d, delta, hn::Load(d, log_decay + n * kBlockChannels + lane), offset);
      hn::Store(decay, d, out.decay + out.At(t, n));
      h[n] = hn::MulAdd(decay, h[n], hn::Mul(delta_u, b(d, t, n, lane)));
      hn::Store(h[n], d, out.h + out.At(t + 1, n));
    }
  }
}

template <int kTile, class FormC>
HWY_INLINE void ProjectTile(const TileTask& task, int lane, const FormC& c,
                            const TileStates<kTile>& states, float* projected) {
  const D d;
  for (int64_t t = 0; t < task.steps; ++t) {
    V sum = hn::Load(d, projected + t * kBlockChannels + lane);
    HWY_UNROLL(8)
    for (int n = 0; n < kTile; ++n) {
      sum = hn::MulAdd(hn::Load(d, states.h + states.At(t + 1, n)), c(d, t, n, lane), sum);
    }
    hn::Store(sum, d, projected + t * kBlockChannels + lane);
  }
}

// From the gradient of the state after the slice (`carry`) to that of the state before it.
template <int kTile, class FormB, class FormC>
HWY_NOINLINE void BackwardTile(const TileTask& task, BlockSlice& x, const float* log_decay,
                               const FormB b, const FormC c, const float* state, float* carry,
                               ProjectionSums db, ProjectionSums dc, float* da) {
  const D d;
  TileStates<kTile> states;
  for (int lane = 0; lane < kBlockChannels; lane += kLanes) {
    RecomputeTile(task, x.in, lane, log_decay, b, state, states);
    if (task.project) ProjectTile(task, lane, c, states, x.projected);
    V g[kTile];
    V sum_da[kTile];
    HWY_UNROLL(8)
    for (int n = 0; n < kTile; ++n) {
      g[n] = hn::Load(d, carry + n * kBlockChannels + lane);
      sum_da[n] = hn::Zero(d);
    }
    for (int64_t t = task.steps - 1; t >= 0; --t) {
      const int64_t at = t * kBlockChannels + lane;
      const V delta = hn::Load(d, x.in.delta + at);
      const V delta_u = hn::Load(d, x.in.delta_u + at);
      const V dp = hn::Load(d, x.dprojected + at);
      x.upcoming.Prefetch(t);
      V sum_gb = hn::Load(d, x.sum_gb + at);
      V sum_wa = hn::Load(d, x.sum_wa + at);
      HWY_UNROLL(8)
      for (int n = 0; n < kTile; ++n) {
        const V total = hn::MulAdd(dp, c(d, t, n, lane), g[n]);
        dc.Add(d, hn::Load(d, states.h + states.At(t + 1, n)), dp, t, n, lane);
        db.Add(d, total, delta_u, t, n, lane);
        sum_gb = hn::MulAdd(total, b(d, t, n, lane), sum_gb);
        g[n] = hn::Mul(total, hn::Load(d, states.decay + states.At(t, n)));
        const V w = hn::Mul(g[n], hn::Load(d, states.h + states.At(t, n)));
        sum_wa = hn::MulAdd(w, hn::Load(d, log_decay + n * kBlockChannels + lane), sum_wa);
        sum_da[n] = hn::MulAdd(w, delta, sum_da[n]);
      }
      hn::Store(sum_gb, d, x.sum_gb + at);
      hn::Store(sum_wa, d, x.sum_wa + at);
    }
    HWY_UNROLL(8)
    for (int n = 0; n < kTile; ++n) {
      hn::Store(g[n], d, carry + n * kBlockChannels + lane);
      float* at = da + n * kBlockChannels + lane;
      hn::Store(hn::Add(hn::Load(d, at), sum_da[n]), d, at);
    }
  }
}

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE void FoldFour(const float* lanes, float* four) {
  for (int n = 0; n < 4; ++n, lanes += kBlockChannels) {
    four[n] = 0;
    for (int lane = 0; lane < kBlockChannels; ++lane) four[n] += lanes[lane];
  }
}

#else

// Adds the halves of a vector until four lanes are left.
template <class DX, class VX>
HWY_INLINE auto FoldToFourLanes(DX d, VX v) {
  if constexpr (hn::MaxLanes(DX()) <= 4) {
    (void)d;
    return v;
  } else {
    const hn::Half<DX> half;
    return FoldToFourLanes(half, hn::Add(hn::UpperHalf(half, v), hn::LowerHalf(half, v)));
  }
}

// All 16 lanes of a block added, kLanes by kLanes.
HWY_INLINE V FoldBlock(D d, const float* lanes) {
  V sum = hn::Load(d, lanes);
  for (int lane = kLanes; lane < kBlockChannels; lane += kLanes) {
    sum = hn::Add(sum, hn::Load(d, lanes + lane));
  }
  return sum;
}

// The sums over the lanes of four rows of 16.
HWY_INLINE void FoldFour(const float* lanes, float* four) {
  const D d;
  const V v0 = FoldBlock(d, lanes);
  const V v1 = FoldBlock(d, lanes + kBlockChannels);
  const V v2 = FoldBlock(d, lanes + 2 * kBlockChannels);
  const V v3 = FoldBlock(d, lanes + 3 * kBlockChannels);
  const V even = hn::Add(hn::InterleaveLower(d, v0, v2), hn::InterleaveUpper(d, v0, v2));
  const V odd = hn::Add(hn::InterleaveLower(d, v1, v3), hn::InterleaveUpper(d, v1, v3));
  const V all = hn::Add(hn::InterleaveLower(d, even, odd), hn::InterleaveUpper(d, even, odd));
  hn::Store(FoldToFourLanes(d, all), hn::CappedTag<float, 4>(), four);
}

#endif  // HWY_TARGET == HWY_SCALAR

// sums[t][tile][16 lanes] over the lanes into out[t * stride + n]. Reads up to three rows beyond.
HWY_NOINLINE void ReduceLanes(const float* sums, int64_t steps, int tile, float* out,
                              int64_t stride) {
  for (int64_t t = 0; t < steps; ++t) {
    for (int n = 0; n < tile; n += 4) {
      HWY_ALIGN float four[4];
      FoldFour(sums + (t * tile + n) * kBlockChannels, four);
      std::memcpy(out + t * stride + n, four, sizeof(float) * std::min(4, tile - n));
    }
  }
}

// What the slice before `slice` in time will touch first; nothing if `first`.
HWY_INLINE UpcomingRows RowsBefore(const Args<float>& args, const Slice& slice, bool first,
                                   const BlockSlice& x) {
  if (first) return {{x.in.delta, x.in.delta, x.in.delta}, 0};
  const int64_t before = slice.At(-kSliceSteps);
  const auto row = [&](const float* tensor)
                       HWY_ATTR { return (tensor == nullptr ? args.u : tensor) + before; };
  return {{row(args.dy), row(args.du), row(args.ddelta)}, slice.stride};
}

// Fills delta, delta * u and the gradient of the projection; clears the sums. `first` says that no
// slice of the piece comes before this one in time.
HWY_NOINLINE void PrepareGradients(const Args<float>& args, const Slice& slice, bool first,
                                   BlockSlice& out) {
  const D d;
  PrepareInputs(args, slice, out.in);
  out.upcoming = RowsBefore(args, slice, first, out);
  for (int lane = 0; lane < kBlockChannels; lane += kLanes) {
    for (int64_t t = 0; t < slice.steps; ++t) {
      const int64_t at = t * kBlockChannels + lane;
      V dp = hn::Zero(d);
      if (args.dy != nullptr) {
        dp = LoadChannels(d, args.dy + slice.At(t), lane, slice.count);
        if (args.z != nullptr) {
          const V z = LoadChannels(d, args.z + slice.At(t), lane, slice.count);
          dp = hn::Mul(dp, hn::Mul(z, vm::Sigmoid(d, z)));
        }
      }
      hn::Store(dp, d, out.dprojected + at);
      hn::Store(hn::Zero(d), d, out.sum_gb + at);
      hn::Store(hn::Zero(d), d, out.sum_wa + at);
      hn::Store(hn::Zero(d), d, out.projected + at);
    }
  }
}

// dz = dy p silu'(z), with p = <C, h> + D u.
HWY_INLINE void StoreGateGradient(D d, const Args<float>& args, const Slice& slice, int64_t t,
                                  int lane, V p) {
  const V z = LoadChannels(d, args.z + slice.At(t), lane, slice.count);
  const V dy =
      args.dy == nullptr ? hn::Zero(d) : LoadChannels(d, args.dy + slice.At(t), lane, slice.count);
  const V one = hn::Set(d, 1.0f);
  const V sigmoid = vm::Sigmoid(d, z);
  const V slope = hn::Mul(sigmoid, hn::MulAdd(z, hn::Sub(one, sigmoid), one));
  StoreChannels(d, hn::Mul(hn::Mul(dy, p), slope), args.dz + slice.At(t), lane, slice.count);
}

// From the sums over the states to du, ddelta and dz, and the sums of dD and ddelta_bias.
HWY_NOINLINE void FinishGradients(const Args<float>& args, const Slice& slice, const BlockSlice& x,
                                  float* sum_dskip, float* sum_dbias) {
  const D d;
  const V ln2 = hn::Set(d, 0.693147180559945f);
  for (int lane = 0; lane < kBlockChannels; lane += kLanes) {
    const V bias = Bias(d, args, slice, lane);
    const V skip = args.D == nullptr ? hn::Zero(d)
                                     : LoadChannels(d, args.D + slice.channel, lane, slice.count);
    V dskip = hn::Zero(d);
    V dbias = hn::Zero(d);
    for (int64_t t = 0; t < slice.steps; ++t) {
      const int64_t at = t * kBlockChannels + lane;
      const V u = LoadChannels(d, args.u + slice.At(t), lane, slice.count);
      const V dp = hn::Load(d, x.dprojected + at);
      const V gb = hn::Load(d, x.sum_gb + at);
      if (args.du != nullptr) {
        V du = hn::Mul(gb, hn::Load(d, x.in.delta + at));
        if (args.D != nullptr) du = hn::MulAdd(dp, skip, du);
        StoreChannels(d, du, args.du + slice.At(t), lane, slice.count);
      }
      V ddelta = hn::MulAdd(gb, u, hn::Mul(ln2, hn::Load(d, x.sum_wa + at)));
      if (args.delta_softplus) {
        V raw = LoadChannels(d, args.delta + slice.At(t), lane, slice.count);
        if (args.delta_bias != nullptr) raw = hn::Add(raw, bias);
        ddelta = hn::Mul(ddelta, vm::Sigmoid(d, raw));
      }
      if (args.ddelta != nullptr) {
        StoreChannels(d, ddelta, args.ddelta + slice.At(t), lane, slice.count);
      }
      dbias = hn::Add(dbias, ddelta);
      dskip = hn::MulAdd(dp, u, dskip);
      if (args.dz != nullptr) {
        V p = hn::Load(d, x.projected + at);
        if (args.D != nullptr) p = hn::MulAdd(skip, u, p);
        StoreGateGradient(d, args, slice, t, lane, p);
      }
    }
    hn::Store(hn::Add(hn::Load(d, sum_dskip + lane), dskip), d, sum_dskip + lane);
    hn::Store(hn::Add(hn::Load(d, sum_dbias + lane), dbias), d, sum_dbias + lane);
  }
}

// The states before each slice of a piece.
void RecordSliceStates(const FusedCall& call, int64_t row, const ChannelRange& range,
                       const Piece& piece) {
  const Args<float>& args = call.args;
  StepInputs in;
  const int64_t sequence = call.FirstSequence(row) + piece.sequence;
  for (int64_t block = range.block; block < range.block + range.num_blocks; ++block) {
    float* first = call.SliceState(row, block, 0);
    if (piece.saved_state < 0) {
      LoadState(call, block, OfSequence(args, args.initial_state, sequence), first);
    } else {
      std::memcpy(first, call.SavedState(row, piece.saved_state, block),
                  sizeof(float) * call.block_size());
    }
  }
  int64_t index = 1;
  for (int64_t begin = piece.begin; begin + kSliceSteps < piece.end;
       begin += kSliceSteps, ++index) {
    for (int64_t block = range.block; block < range.block + range.num_blocks; ++block) {
      const Slice slice = SliceOf(call, row, block, begin, piece.end);
      float* state = call.SliceState(row, block, index);
      std::memcpy(state, call.SliceState(row, block, index - 1), sizeof(float) * call.block_size());
      PrepareInputs(args, slice, in);
      ScanSlice<false>(call, in, block, range.group, slice,
                       kRoundingOffsets + (begin - piece.begin) % 16,
                       begin + 2 * kSliceSteps <= piece.end, state, nullptr);
    }
  }
}

// Working memory of one task of the backward.
struct BackwardScratch {
  BlockSlice blocks[kRangeBlocks];
  // Sums over the blocks of a range, for one tile. Three rows more than the smallest tiles use, for
  // ReduceLanes.
  HWY_ALIGN float db[kSliceSize * kBackwardTile + 3 * kBlockChannels];
  HWY_ALIGN float dc[kSliceSize * kBackwardTile + 3 * kBlockChannels];
};

template <int kTile>
HWY_INLINE void BackwardTileOfRange(const FusedCall& call, int64_t row, const ChannelRange& range,
                                    int64_t time, int64_t slice_index, const TileTask& task,
                                    int64_t n, BackwardScratch& scratch) {
  const ParameterSums layout{call.args.dstate};
  const int64_t first = n * kBlockChannels;
  constexpr int64_t kStride = kTile * kBlockChannels;
  const size_t used = sizeof(float) * (task.steps * kStride + 3 * kBlockChannels);
  if (!call.args.B.constant) std::memset(scratch.db, 0, used);
  if (!call.args.C.constant) std::memset(scratch.dc, 0, used);
  for (int64_t i = 0; i < range.num_blocks; ++i) {
    const int64_t block = range.block + i;
    float* sums = call.WindowSums(row, block);
    const ProjectionSums db = call.args.B.constant ? ProjectionSums{sums + layout.B() + first, 0}
                                                   : ProjectionSums{scratch.db, kStride};
    const ProjectionSums dc = call.args.C.constant ? ProjectionSums{sums + layout.C() + first, 0}
                                                   : ProjectionSums{scratch.dc, kStride};
    WithForms<kTile>(call, block, range.group, time, n, [&](auto b, auto c) HWY_ATTR {
      BackwardTile<kTile>(task, scratch.blocks[i], call.LogDecay(block) + first, b, c,
                          call.SliceState(row, block, slice_index) + first,
                          call.Carry(row, block) + first, db, dc, sums + layout.A() + first);
    });
  }
}

void BackwardSlice(const FusedCall& call, int64_t row, int64_t range_index, const Piece& piece,
                   int64_t window_begin, int64_t slice_index, BackwardScratch& scratch) {
  const Args<float>& args = call.args;
  const ChannelRange& range = call.schedule.ranges[range_index];
  const ParameterSums layout{args.dstate};
  const int64_t begin = piece.begin + slice_index * kSliceSteps;
  const int64_t steps = std::min<int64_t>(kSliceSteps, piece.end - begin);
  const TileTask task = {steps, kRoundingOffsets + (begin - piece.begin) % 16, args.dz != nullptr};
  for (int64_t i = 0; i < range.num_blocks; ++i) {
    PrepareGradients(args, SliceOf(call, row, range.block + i, begin, piece.end), slice_index == 0,
                     scratch.blocks[i]);
  }
  const int64_t partial = (begin - window_begin) * args.dstate;
  ForEachTile<kBackwardTile>(args, [&](auto tile, int64_t n) HWY_ATTR {
    BackwardTileOfRange<tile()>(call, row, range, row * args.seqlen + begin, slice_index, task, n,
                                scratch);
    if (!args.B.constant) {
      ReduceLanes(scratch.db, steps, tile(), call.PartialB(row, range_index) + partial + n,
                  args.dstate);
    }
    if (!args.C.constant) {
      ReduceLanes(scratch.dc, steps, tile(), call.PartialC(row, range_index) + partial + n,
                  args.dstate);
    }
  });
  for (int64_t i = 0; i < range.num_blocks; ++i) {
    float* sums = call.WindowSums(row, range.block + i);
    FinishGradients(args, SliceOf(call, row, range.block + i, begin, piece.end), scratch.blocks[i],
                    sums + layout.D(), sums + layout.delta_bias());
  }
}

void BackwardPiece(const FusedCall& call, int64_t row, int64_t range_index, const Piece& piece,
                   int64_t window_begin, BackwardScratch& scratch) {
  const Args<float>& args = call.args;
  const ChannelRange& range = call.schedule.ranges[range_index];
  const int64_t sequence = call.FirstSequence(row) + piece.sequence;
  if (piece.ends_sequence) {
    for (int64_t block = range.block; block < range.block + range.num_blocks; ++block) {
      LoadState(call, block, OfSequence(args, args.dfinal_state, sequence), call.Carry(row, block));
    }
  }
  RecordSliceStates(call, row, range, piece);
  const int64_t slices = (piece.end - piece.begin + kSliceSteps - 1) / kSliceSteps;
  for (int64_t index = slices - 1; index >= 0; --index) {
    BackwardSlice(call, row, range_index, piece, window_begin, index, scratch);
  }
  if (piece.saved_state >= 0 || args.dinitial_state == nullptr) return;
  for (int64_t block = range.block; block < range.block + range.num_blocks; ++block) {
    StoreState(call, block, call.Carry(row, block),
               OfSequence(args, args.dinitial_state, sequence));
  }
}

void BackwardRange(const FusedCall& call, int64_t row, int64_t range_index, const Window& window) {
  const ChannelRange& range = call.schedule.ranges[range_index];
  const int64_t size = ParameterSums{call.args.dstate}.size();
  for (int64_t block = range.block; block < range.block + range.num_blocks; ++block) {
    std::memset(call.WindowSums(row, block), 0, sizeof(float) * size);
  }
  BackwardScratch scratch;
  for (int64_t i = window.num_pieces - 1; i >= 0; --i) {
    BackwardPiece(call, row, range_index, call.schedule.pieces[window.piece + i], window.begin,
                  scratch);
  }
  for (int64_t block = range.block; block < range.block + range.num_blocks; ++block) {
    const float* sums = call.WindowSums(row, block);
    double* totals = call.TotalSums(row, block);
    for (int64_t i = 0; i < size; ++i) totals[i] += static_cast<double>(sums[i]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace scanserve::selective_scan
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace scanserve::selective_scan {

HWY_EXPORT(BackwardRange);

void BackwardRange(const FusedCall& call, int64_t row, int64_t range, const Window& window) {
  HWY_DYNAMIC_DISPATCH(BackwardRange)(call, row, range, window);
}

}  // namespace scanserve::selective_scan
#endif  // HWY_ONCE
