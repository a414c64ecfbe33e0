// Vector functions in FP32 for Highway kernels. Included once per target, like every -inl header.
#if defined(SCANSERVE_KERNELS_COMMON_CPU_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SCANSERVE_KERNELS_COMMON_CPU_VECTOR_MATH_INL_H_
#undef SCANSERVE_KERNELS_COMMON_CPU_VECTOR_MATH_INL_H_
#else
#define SCANSERVE_KERNELS_COMMON_CPU_VECTOR_MATH_INL_H_
#endif

#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace scanserve {
namespace HWY_NAMESPACE {
namespace vector_math {

namespace hn = hwy::HWY_NAMESPACE;

// The larger and the smaller of two; a NaN in x stays. Vector instructions return their second
// operand, or the NaN, when there is one; plain C++ returns the number.
template <class D, class V>
HWY_INLINE V AtLeast([[maybe_unused]] D d, V bound, V x) {
#if HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Lt(x, bound), bound, x);
#else
  return hn::Max(bound, x);
#endif
}

template <class D, class V>
HWY_INLINE V AtMost([[maybe_unused]] D d, V bound, V x) {
#if HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Gt(x, bound), bound, x);
#else
  return hn::Min(bound, x);
#endif
}

// Adding it rounds a float to the nearest integer, which then stands in the low bits of the sum.
inline constexpr float kRoundingMagic = 0x1.8p23f;

// 2^r for |r| <= 1/2, relative error below 1e-7 and exactly 1 at r = 0 (minimax with that
// constraint): a decay close to 1 is biased by no more than its own argument is.
template <class D, class V>
HWY_INLINE V Exp2Polynomial(D d, V r) {
  V p = hn::Set(d, 1.326472205626173e-3f);
  p = hn::MulAdd(p, r, hn::Set(d, 9.671512997238335e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.550733760361218e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 2.4022242077579614e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 6.931469775872287e-1f));
  return hn::MulAdd(p, r, hn::Set(d, 1.0f));
}

// 2^x, relative error below 1.3e-7: exactly 0 from -127 down, infinity from 128 up. A NaN passes
// through if its payload is zero (Canonical makes it so); others may be lost.
template <class D, class V>
HWY_INLINE V Exp2(D d, V x) {
  const hn::RebindToSigned<D> di;
  x = AtMost(d, hn::Set(d, 128.0f), AtLeast(d, hn::Set(d, -127.0f), x));
  const V magic = hn::Set(d, kRoundingMagic);
  const V rounded = hn::Add(x, magic);
  const V p = Exp2Polynomial(d, hn::Sub(x, hn::Sub(rounded, magic)));
  // The integer in the low bits of `rounded` goes straight onto the exponent of p.
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, rounded))));
}

// Every NaN becomes the one with a zero payload.
template <class D, class V>
HWY_INLINE V Canonical(D d, V x) {
  return hn::IfThenElse(hn::IsNaN(x), hn::Set(d, std::numeric_limits<float>::quiet_NaN()), x);
}

// exp(x) for x <= 0, relative error below 2e-7; 0 below -88. NaN stays NaN.
template <class D, class V>
HWY_INLINE V ExpNonPositive(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, kRoundingMagic);
  const V clamped = AtLeast(d, hn::Set(d, -88.0f), x);
  const V rounded = hn::MulAdd(clamped, hn::Set(d, 1.44269504088896341f), magic);
  const V n = hn::Sub(rounded, magic);
  // ln 2 in two parts keeps the remainder exact where x is large.
  const V high = hn::NegMulAdd(n, hn::Set(d, 0.693145751953125f), clamped);
  const V low = hn::NegMulAdd(n, hn::Set(d, 1.42860682030941723e-6f), high);
  const V p = Exp2Polynomial(d, hn::Mul(low, hn::Set(d, 1.44269504088896341f)));
  const V scale =
      hn::BitCast(d, hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, rounded)), hn::Set(di, 127 << 23)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -88.0f)), hn::Mul(p, scale));
}

// log(1 + exp(x)), relative error below 4e-7 down to x = -88, where it becomes 0; x from 20 up.
template <class D, class V>
HWY_INLINE V Softplus(D d, V x) {
  const V e = ExpNonPositive(d, hn::Neg(hn::Abs(x)));
  // log1p(e) / e on [0, 1], minimax.
  V p = hn::Set(d, -3.23777358751e-3f);
  p = hn::MulAdd(p, e, hn::Set(d, 1.982478897434472e-2f));
  p = hn::MulAdd(p, e, hn::Set(d, -5.6912602802647906e-2f));
  p = hn::MulAdd(p, e, hn::Set(d, 1.0599264098160381e-1f));
  p = hn::MulAdd(p, e, hn::Set(d, -1.5303245972881305e-1f));
  p = hn::MulAdd(p, e, hn::Set(d, 1.9675224798948582e-1f));
  p = hn::MulAdd(p, e, hn::Set(d, -2.495401765154648e-1f));
  p = hn::MulAdd(p, e, hn::Set(d, 3.3329953928047124e-1f));
  p = hn::MulAdd(p, e, hn::Set(d, -4.999990224918764e-1f));
  p = hn::MulAdd(p, e, hn::Set(d, 9.999999952920868e-1f));
  return hn::MulAdd(p, e, AtLeast(d, hn::Zero(d), x));
}

// 1 / (1 + exp(-x)), relative error below 4e-7 down to x = -88, where it becomes 0.
template <class D, class V>
HWY_INLINE V Sigmoid(D d, V x) {
  const V e = ExpNonPositive(d, hn::Neg(hn::Abs(x)));
  const V one = hn::Set(d, 1.0f);
  const V numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return hn::Div(numerator, hn::Add(one, e));
}

}  // namespace vector_math
}  // namespace HWY_NAMESPACE
}  // namespace scanserve
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
