#include "kernels/ops/selective_scan/fused_kernels.h"

// Before foreach_target.h.
#include "kernels/common/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/selective_scan/fused_forward.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "kernels/ops/selective_scan/fused-inl.h"

HWY_BEFORE_NAMESPACE();
namespace scanserve::selective_scan {
namespace HWY_NAMESPACE {

// y = (projected + D u) silu(z), where `projected` holds <C, h>.
HWY_NOINLINE void FinishOutputs(const Args<float>& args, const Slice& slice,
                                const float* projected) {
  const D d;
  for (int lane = 0; lane < kBlockChannels; lane += kLanes) {
    const V skip = args.D == nullptr ? hn::Zero(d)
                                     : LoadChannels(d, args.D + slice.channel, lane, slice.count);
    for (int64_t t = 0; t < slice.steps; ++t) {
      V y = hn::Load(d, projected + t * kBlockChannels + lane);
      if (args.D != nullptr) {
        y = hn::MulAdd(skip, LoadChannels(d, args.u + slice.At(t), lane, slice.count), y);
      }
      if (args.z != nullptr) {
        const V z = LoadChannels(d, args.z + slice.At(t), lane, slice.count);
        y = hn::Mul(y, hn::Mul(z, vm::Sigmoid(d, z)));
      }
      StoreChannels(d, y, args.y + slice.At(t), lane, slice.count);
    }
  }
}

void ForwardPiece(const FusedCall& call, int64_t row, const ChannelRange& range,
                  const Piece& piece) {
  StepInputs in;
  HWY_ALIGN float projected[kSliceSize];
  for (int64_t begin = piece.begin; begin < piece.end; begin += kSliceSteps) {
    const float* offsets = kRoundingOffsets + (begin - piece.begin) % 16;
    for (int64_t i = 0; i < range.num_blocks; ++i) {
      const int64_t block = range.block + i;
      const Slice slice = SliceOf(call, row, block, begin, piece.end);
      PrepareInputs(call.args, slice, in);
      const bool more = begin + 2 * kSliceSteps <= piece.end;
      float* state = call.Carry(row, block);
      if (call.args.y == nullptr) {
        ScanSlice<false>(call, in, block, range.group, slice, offsets, more, state, nullptr);
      } else {
        std::memset(projected, 0, sizeof(projected));
        ScanSlice<true>(call, in, block, range.group, slice, offsets, more, state, projected);
        FinishOutputs(call.args, slice, projected);
      }
    }
  }
}

void ForwardRange(const FusedCall& call, int64_t row, int64_t range_index) {
  const Args<float>& args = call.args;
  const ChannelRange& range = call.schedule.ranges[range_index];
  for (const Piece& piece : call.schedule.pieces) {
    const int64_t sequence = call.FirstSequence(row) + piece.sequence;
    for (int64_t block = range.block; block < range.block + range.num_blocks; ++block) {
      if (piece.saved_state < 0) {
        LoadState(call, block, OfSequence(args, args.initial_state, sequence),
                  call.Carry(row, block));
      } else if (args.backward) {
        std::memcpy(call.SavedState(row, piece.saved_state, block), call.Carry(row, block),
                    sizeof(float) * call.block_size());
      }
    }
    ForwardPiece(call, row, range, piece);
    if (!piece.ends_sequence || args.final_state == nullptr) continue;
    for (int64_t block = range.block; block < range.block + range.num_blocks; ++block) {
      StoreState(call, block, call.Carry(row, block), OfSequence(args, args.final_state, sequence));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace scanserve::selective_scan
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace scanserve::selective_scan {

HWY_EXPORT(ForwardRange);

void ForwardRange(const FusedCall& call, int64_t row, int64_t range) {
  HWY_DYNAMIC_DISPATCH(ForwardRange)(call, row, range);
}

}  // namespace scanserve::selective_scan
#endif  // HWY_ONCE
