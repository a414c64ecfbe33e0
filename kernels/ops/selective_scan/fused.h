// The fused FP32 scan on the CPU: 16 channels side by side in vector lanes, their states in
// registers, time in short steps that stay in the first-level cache. README.md has the reasoning.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops/selective_scan/args.h"
#include "kernels/runtime/workspace.h"

namespace scanserve::selective_scan {

// Channels of a block: the stride of everything that is kept by lanes, whatever the vector length.
inline constexpr int kBlockChannels = 16;
// Blocks of a range at most.
inline constexpr int kRangeBlocks = 8;
// Steps of a piece at most: between two saved states.
inline constexpr int kPieceSteps = 256;
// Steps that are scanned for one block before the next block's turn; states are recorded every so
// many steps on the way back. A multiple of 16, the period of the decay's rounding offsets.
inline constexpr int kSliceSteps = 16;

// Up to 16 neighbouring channels of one group.
struct ChannelBlock {
  int64_t channel = 0;  // the first
  int count = 0;
};

// Neighbouring blocks of one group: the share of one task.
struct ChannelRange {
  int64_t block = 0;  // the first
  int num_blocks = 0;
  int64_t group = 0;
};

// Neighbouring steps of one sequence. A sequence without steps has one empty piece.
struct Piece {
  int64_t sequence = 0;  // relative to the row's first
  int64_t begin = 0;     // relative to the row's first step
  int64_t end = 0;
  int64_t saved_state = -1;  // where the state before it is kept; -1: it begins its sequence
  bool ends_sequence = false;
};

// Neighbouring pieces whose backward runs between two reductions over the channels.
struct Window {
  int64_t piece = 0;  // the first
  int64_t num_pieces = 0;
  int64_t begin = 0;  // steps, relative to the row's first
  int64_t end = 0;
};

// How a call is cut, and where in the workspace its parts lie. Depends on the shape of one batch
// row (and cu_seqlens) alone; every row is cut alike. Immutable.
class FusedSchedule {
 public:
  // Uses the sizes of `args` and which tensors are per step; of the data only cu_seqlens.
  FusedSchedule(const Args<float>& args, WorkspaceLayout& layout);

  size_t HostBytes() const {
    return blocks.capacity() * sizeof(ChannelBlock) + ranges.capacity() * sizeof(ChannelRange) +
           pieces.capacity() * sizeof(Piece) + windows.capacity() * sizeof(Window);
  }

  std::vector<ChannelBlock> blocks;
  std::vector<ChannelRange> ranges;
  std::vector<Piece> pieces;
  std::vector<Window> windows;
  int64_t saved_states = 0;  // per row
  int64_t window_steps = 0;  // of the longest window
  int64_t piece_slices = 0;  // of the longest piece

  // Workspace offsets. "block" stands for [dstate][16 lanes].
  size_t log2_decay = 0;  // A * log2(e)   [blocks] block
  size_t constant_b = 0;  // B             [blocks] block, if constant
  size_t constant_c = 0;  // C             [blocks] block, if constant
  size_t carry = 0;       // state going forward, its gradient going back  [batch][blocks] block
  size_t saved = 0;       // states before pieces  [batch][saved_states][blocks] block
  size_t slices = 0;      // states before slices  [batch][blocks][piece_slices] block
  size_t partial_b = 0;   // dB of a window  [batch][ranges][window_steps][dstate]
  size_t partial_c = 0;   // dC of a window  [batch][ranges][window_steps][dstate]
  // Sums over time, by row: within a window in FP32, over the windows in FP64.
  size_t window_sums = 0;  // [batch][blocks] ParameterSums
  size_t total_sums = 0;   // [batch][blocks] ParameterSums
};

// Rows of 16 lanes in the sums of the parameter gradients of one block: dA, then dB and dC (where
// constant), dstate each; then dD and ddelta_bias.
struct ParameterSums {
  int64_t dstate;
  int64_t A() const { return 0; }
  int64_t B() const { return dstate * kBlockChannels; }
  int64_t C() const { return 2 * dstate * kBlockChannels; }
  int64_t D() const { return 3 * dstate * kBlockChannels; }
  int64_t delta_bias() const { return D() + kBlockChannels; }
  int64_t size() const { return D() + 2 * kBlockChannels; }
};

// One run: what the per-target kernels share.
struct FusedCall {
  const Args<float>& args;
  const FusedSchedule& schedule;
  Workspace workspace;

  int64_t block_size() const { return args.dstate * kBlockChannels; }
  int64_t num_blocks() const { return static_cast<int64_t>(schedule.blocks.size()); }
  const float* LogDecay(int64_t block) const {
    return workspace.At<float>(schedule.log2_decay) + block * block_size();
  }
  const float* ConstantB(int64_t block) const {
    return workspace.At<float>(schedule.constant_b) + block * block_size();
  }
  const float* ConstantC(int64_t block) const {
    return workspace.At<float>(schedule.constant_c) + block * block_size();
  }
  float* Carry(int64_t row, int64_t block) const {
    return workspace.At<float>(schedule.carry) + (row * num_blocks() + block) * block_size();
  }
  float* SavedState(int64_t row, int64_t slot, int64_t block) const {
    return workspace.At<float>(schedule.saved) +
           ((row * schedule.saved_states + slot) * num_blocks() + block) * block_size();
  }
  float* SliceState(int64_t row, int64_t block, int64_t slice) const {
    return workspace.At<float>(schedule.slices) +
           ((row * num_blocks() + block) * schedule.piece_slices + slice) * block_size();
  }
  // [window_steps][dstate]
  float* PartialB(int64_t row, int64_t range) const {
    return Partial(schedule.partial_b, row, range);
  }
  float* PartialC(int64_t row, int64_t range) const {
    return Partial(schedule.partial_c, row, range);
  }
  float* WindowSums(int64_t row, int64_t block) const {
    return workspace.At<float>(schedule.window_sums) +
           (row * num_blocks() + block) * ParameterSums{args.dstate}.size();
  }
  double* TotalSums(int64_t row, int64_t block) const {
    return workspace.At<double>(schedule.total_sums) +
           (row * num_blocks() + block) * ParameterSums{args.dstate}.size();
  }
  int64_t FirstSequence(int64_t row) const { return args.cu_seqlens != nullptr ? 0 : row; }

 private:
  float* Partial(size_t offset, int64_t row, int64_t range) const {
    const auto ranges = static_cast<int64_t>(schedule.ranges.size());
    return workspace.At<float>(offset) +
           (row * ranges + range) * schedule.window_steps * args.dstate;
  }
};

// Runs the forward, the backward or both, as `args` asks, with ParallelFor.
void RunFused(const Args<float>& args, const FusedSchedule& schedule, Workspace workspace);

}  // namespace scanserve::selective_scan
