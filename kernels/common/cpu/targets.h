// The instruction sets that vector kernels are not compiled for. Include before foreach_target.h.
#pragma once

// Arrays of vectors stand for registers, which scalable vectors do not allow; and every x86
// processor with SSSE3 that is still in service has SSE4.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
