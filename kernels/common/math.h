// Scalar functions that several operators share.
#pragma once

#include <cmath>

namespace scanserve {

// 1 / (1 + exp(-x)); never overflows into NaN.
template <typename T>
T Sigmoid(T x) {
  return T{1} / (T{1} + std::exp(-x));
}

// log(1 + exp(x)), and x itself above 20. log1p keeps the relative accuracy at the lower end, where
// log(1 + exp(x)) would return zero.
template <typename T>
T Softplus(T x) {
  return x > T{20} ? x : std::log1p(std::exp(x));
}

template <typename T>
T SoftplusDerivative(T x) {
  return x > T{20} ? T{1} : Sigmoid(x);
}

template <typename T>
T Silu(T x) {
  return x * Sigmoid(x);
}

template <typename T>
T SiluDerivative(T x) {
  const T sigmoid = Sigmoid(x);
  return sigmoid * (T{1} + x * (T{1} - sigmoid));
}

}  // namespace scanserve
