#include "kernels/ops/selective_scan/fused.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/parallel_for.h"
#include "kernels/ops/selective_scan/fused_kernels.h"

namespace scanserve::selective_scan {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Groups of channels that share both B and C.
int64_t Groups(const Args<float>& args) {
  return std::max(args.B.constant ? 1 : args.B.groups, args.C.constant ? 1 : args.C.groups);
}

// Four ranges or more where that is possible, so that a single sequence keeps several threads
// busy; more where ranges would get too long for their sums to stay in cache.
void CutChannels(const Args<float>& args, FusedSchedule& schedule) {
  const int64_t groups = Groups(args);
  const int64_t channels = args.dim / groups;
  const int64_t blocks = CeilDiv(channels, kBlockChannels);
  const int64_t blocks_per_range =
      std::clamp<int64_t>(CeilDiv(blocks * groups, 4), 1, std::min<int64_t>(blocks, kRangeBlocks));
  for (int64_t group = 0; group < groups; ++group) {
    for (int64_t i = 0; i < blocks; ++i) {
      if (i % blocks_per_range == 0) {
        schedule.ranges.push_back(
            {.block = static_cast<int64_t>(schedule.blocks.size()), .group = group});
      }
      ++schedule.ranges.back().num_blocks;
      const int64_t first = i * kBlockChannels;
      schedule.blocks.push_back(
          {.channel = group * channels + first,
           .count = static_cast<int>(std::min<int64_t>(kBlockChannels, channels - first))});
    }
  }
}

void CutTime(const Args<float>& args, FusedSchedule& schedule) {
  const int64_t sequences = args.cu_seqlens != nullptr ? args.sequences : 1;
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t end = args.cu_seqlens != nullptr ? args.cu_seqlens[s + 1] : args.seqlen;
    int64_t begin = args.cu_seqlens != nullptr ? args.cu_seqlens[s] : 0;
    bool first = true;
    do {
      const int64_t next = std::min<int64_t>(begin + kPieceSteps, end);
      schedule.pieces.push_back({.sequence = s,
                                 .begin = begin,
                                 .end = next,
                                 .saved_state = first ? -1 : schedule.saved_states++,
                                 .ends_sequence = next == end});
      begin = next;
      first = false;
    } while (begin < end);
  }
  for (const Piece& piece : schedule.pieces) {
    const int64_t index = &piece - schedule.pieces.data();
    if (schedule.windows.empty() || piece.end - schedule.windows.back().begin > kPieceSteps) {
      schedule.windows.push_back({.piece = index, .begin = piece.begin});
    }
    Window& window = schedule.windows.back();
    ++window.num_pieces;
    window.end = piece.end;
    schedule.window_steps = std::max(schedule.window_steps, window.end - window.begin);
    schedule.piece_slices =
        std::max(schedule.piece_slices, CeilDiv(piece.end - piece.begin, kSliceSteps));
  }
}

// Per-channel parameters into lanes: [block][dstate][16], zero where there is no channel.
template <class F>
void PackByLanes(const FusedCall& call, int64_t block, const float* from, float* to, F&& f) {
  const ChannelBlock& channels = call.schedule.blocks[block];
  const int64_t dstate = call.args.dstate;
  to += block * call.block_size();
  std::memset(to, 0, sizeof(float) * call.block_size());
  for (int i = 0; i < channels.count; ++i) {
    const float* row = from + (channels.channel + i) * dstate;
    for (int64_t n = 0; n < dstate; ++n) to[n * kBlockChannels + i] = f(row[n]);
  }
}

void PackParameters(const FusedCall& call) {
  const Args<float>& args = call.args;
  ParallelFor(call.num_blocks(), [&](int64_t block) {
    PackByLanes(call, block, args.A, call.workspace.At<float>(call.schedule.log2_decay),
                [](float a) {
                  // Only this NaN survives the kernel's exponential for certain.
                  if (std::isnan(a)) return std::numeric_limits<float>::quiet_NaN();
                  return a * 1.44269504088896341f;
                });
    const auto same = [](float value) { return value; };
    if (args.B.constant) {
      PackByLanes(call, block, args.B.data, call.workspace.At<float>(call.schedule.constant_b),
                  same);
    }
    if (args.C.constant) {
      PackByLanes(call, block, args.C.data, call.workspace.At<float>(call.schedule.constant_c),
                  same);
    }
  });
}

// Adds the ranges' shares of dB or dC for the steps [begin, end) of a row.
void ReduceProjection(const FusedCall& call, int64_t row, const Window& window, int64_t begin,
                      int64_t end, const Projection<float>& projection,
                      float* (FusedCall::*partial)(int64_t, int64_t) const) {
  if (projection.constant || projection.gradient == nullptr) return;
  const int64_t dstate = call.args.dstate;
  const auto num_ranges = static_cast<int64_t>(call.schedule.ranges.size());
  for (int64_t t = begin; t < end; ++t) {
    float* step = projection.gradient + (row * call.args.seqlen + t) * projection.groups * dstate;
    std::memset(step, 0, sizeof(float) * projection.groups * dstate);
    for (int64_t r = 0; r < num_ranges; ++r) {
      const int64_t group = projection.groups == 1 ? 0 : call.schedule.ranges[r].group;
      const float* from = (call.*partial)(row, r) + (t - window.begin) * dstate;
      float* to = step + group * dstate;
      for (int64_t n = 0; n < dstate; ++n) to[n] += from[n];
    }
  }
}

void ReduceWindow(const FusedCall& call, const Window& window) {
  constexpr int64_t kStepsPerTask = 64;
  const int64_t tasks = CeilDiv(window.end - window.begin, kStepsPerTask);
  ParallelFor(call.args.batch * tasks, [&](int64_t i) {
    const int64_t row = i / tasks;
    const int64_t begin = window.begin + i % tasks * kStepsPerTask;
    const int64_t end = std::min(window.end, begin + kStepsPerTask);
    ReduceProjection(call, row, window, begin, end, call.args.B, &FusedCall::PartialB);
    ReduceProjection(call, row, window, begin, end, call.args.C, &FusedCall::PartialC);
  });
}

// Adds the rows' sums over time, in order, into the gradients of the parameters.
void ReduceParameters(const FusedCall& call) {
  const Args<float>& args = call.args;
  const ParameterSums layout{args.dstate};
  ParallelFor(call.num_blocks(), [&](int64_t block) {
    const ChannelBlock& channels = call.schedule.blocks[block];
    const auto sum = [&](int64_t offset) {
      double total = 0;
      for (int64_t row = 0; row < args.batch; ++row) total += call.TotalSums(row, block)[offset];
      return static_cast<float>(total);
    };
    const auto store_states = [&](float* gradient, int64_t offset) {
      if (gradient == nullptr) return;
      for (int i = 0; i < channels.count; ++i) {
        float* row = gradient + (channels.channel + i) * args.dstate;
        for (int64_t n = 0; n < args.dstate; ++n) row[n] = sum(offset + n * kBlockChannels + i);
      }
    };
    store_states(args.dA, layout.A());
    if (args.B.constant) store_states(args.B.gradient, layout.B());
    if (args.C.constant) store_states(args.C.gradient, layout.C());
    for (int i = 0; i < channels.count; ++i) {
      const int64_t channel = channels.channel + i;
      if (args.dD != nullptr) args.dD[channel] = sum(layout.D() + i);
      if (args.ddelta_bias != nullptr) args.ddelta_bias[channel] = sum(layout.delta_bias() + i);
    }
  });
}

void RunBackward(const FusedCall& call) {
  const Args<float>& args = call.args;
  const FusedSchedule& schedule = call.schedule;
  const auto ranges = static_cast<int64_t>(schedule.ranges.size());
  const int64_t sums = call.num_blocks() * ParameterSums{args.dstate}.size();
  std::memset(call.TotalSums(0, 0), 0, sizeof(double) * args.batch * sums);
  for (auto window = schedule.windows.rbegin(); window != schedule.windows.rend(); ++window) {
    ParallelFor(args.batch * ranges,
                [&](int64_t i) { BackwardRange(call, i / ranges, i % ranges, *window); });
    ReduceWindow(call, *window);
  }
  ReduceParameters(call);
}

}  // namespace

FusedSchedule::FusedSchedule(const Args<float>& args, WorkspaceLayout& layout) {
  CutChannels(args, *this);
  CutTime(args, *this);
  const auto num_blocks = static_cast<int64_t>(blocks.size());
  const auto num_ranges = static_cast<int64_t>(ranges.size());
  const int64_t block_size = args.dstate * kBlockChannels;
  log2_decay = layout.Book<float>(num_blocks * block_size);
  constant_b = layout.Book<float>(args.B.constant ? num_blocks * block_size : 0);
  constant_c = layout.Book<float>(args.C.constant ? num_blocks * block_size : 0);
  carry = layout.Book<float>(args.batch * num_blocks * block_size);
  if (!args.backward) return;
  saved = layout.Book<float>(args.batch * saved_states * num_blocks * block_size);
  slices = layout.Book<float>(args.batch * num_blocks * piece_slices * block_size);
  const int64_t partial = args.batch * num_ranges * window_steps * args.dstate;
  partial_b = layout.Book<float>(args.B.constant ? 0 : partial);
  partial_c = layout.Book<float>(args.C.constant ? 0 : partial);
  const int64_t sums = args.batch * num_blocks * ParameterSums{args.dstate}.size();
  window_sums = layout.Book<float>(sums);
  total_sums = layout.Book<double>(sums);
}

void RunFused(const Args<float>& args, const FusedSchedule& schedule, Workspace workspace) {
  const FusedCall call = {args, schedule, workspace};
  const auto ranges = static_cast<int64_t>(schedule.ranges.size());
  PackParameters(call);
  // A backward alone needs the forward only for the states that it saves.
  if (args.y != nullptr || args.final_state != nullptr || schedule.saved_states > 0) {
    ParallelFor(args.batch * ranges,
                [&](int64_t i) { ForwardRange(call, i / ranges, i % ranges); });
  }
  if (args.backward) RunBackward(call);
}

}  // namespace scanserve::selective_scan
