// The vector kernels of the fused scan, compiled for every instruction set and chosen at run time.
#pragma once

#include "kernels/ops/selective_scan/fused.h"

namespace scanserve::selective_scan {

// Scans one range of channels of one row from its first step to its last: writes y and final_state
// where wanted, and the saved states if the call has a backward.
void ForwardRange(const FusedCall& call, int64_t row, int64_t range);

// Back through one window of one range: needs the saved states and, in the carry, the gradient of
// the state after the window. Writes the gradients that have channels, the range's partial dB and
// dC, and adds to the sums over time.
void BackwardRange(const FusedCall& call, int64_t row, int64_t range, const Window& window);

}  // namespace scanserve::selective_scan
