// From a bound call to the arguments of the kernels.
#pragma once

#include "kernels/ops/selective_scan/args.h"
#include "kernels/spec/bind.h"

namespace scanserve::selective_scan {

// T is float or double, as bound.dtype says. Tensors without data in `arguments` become null, so an
// empty Arguments gives the sizes alone, which is what plans are made from. The result refers to
// the memory of both parameters.
template <typename T>
Args<T> ToArgs(const BoundOp& bound, const Arguments& arguments);

}  // namespace scanserve::selective_scan
