// The oracle of selective_scan: the recurrence as the paper writes it, one channel and one step
// after the other, in FP64 throughout. Never optimised: everything else is measured against it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops/selective_scan/args.h"
#include "kernels/runtime/workspace.h"

namespace scanserve::selective_scan {

// Where the parts of the workspace lie, all of doubles. Each sequence has sums of its own, which
// are added in order at the end.
struct ReferenceLayout {
  template <typename T>
  ReferenceLayout(const Args<T>& args, WorkspaceLayout& workspace);

  // Sums of a sequence: dA, constant dB and dC [dim][dstate] each, then dD and ddelta_bias [dim].
  template <typename T>
  static int64_t ParameterCount(const Args<T>& args) {
    return args.dim * (3 * args.dstate + 2);
  }

  static size_t HostBytes() { return 0; }

  size_t states = 0;  // [sequences][state_rows][dstate]: state, its gradient, kept states
  int64_t state_rows = 0;
  size_t db = 0;          // [batch * seqlen][groups][dstate], unless B is constant
  size_t dc = 0;          // as db, of C
  size_t parameters = 0;  // [sequences][ParameterCount]
};

// Runs the forward, the backward or both, as `args` asks. Sequences run in parallel.
template <typename T>
void RunReference(const Args<T>& args, const ReferenceLayout& layout, Workspace workspace);

}  // namespace scanserve::selective_scan
