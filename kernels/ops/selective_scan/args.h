// What the kernels of selective_scan get: plain pointers and sizes, no library types.
#pragma once

#include <cstdint>

namespace scanserve::selective_scan {

// B or C. data and gradient have one of the shapes
//   per step:            [batch, seqlen, groups, dstate]   (groups is 1 where the tensor has no
//   axis) constant in time:    [dim, dstate]
// Channel d of a projection per step uses group d / (dim / groups).
template <typename T>
struct Projection {
  const T* data = nullptr;
  T* gradient = nullptr;  // null when not wanted
  bool constant = false;
  int64_t groups = 1;
};

// Sequence s of a packed call (batch 1) covers the steps cu_seqlens[s] to cu_seqlens[s + 1] of the
// time axis; without packing each batch row is one sequence. Row-major, contiguous.
template <typename T>
struct Args {
  int64_t batch = 0;
  int64_t seqlen = 0;
  int64_t dim = 0;
  int64_t dstate = 0;
  int64_t sequences = 0;
  const int64_t* cu_seqlens = nullptr;  // [sequences + 1], null when not packed
  bool delta_softplus = false;

  const T* u = nullptr;      // [batch, seqlen, dim]
  const T* delta = nullptr;  // [batch, seqlen, dim]
  const T* A = nullptr;      // [dim, dstate]
  Projection<T> B;
  Projection<T> C;
  const T* D = nullptr;              // [dim], may be null
  const T* z = nullptr;              // [batch, seqlen, dim], may be null
  const T* delta_bias = nullptr;     // [dim], may be null
  const T* initial_state = nullptr;  // [sequences, dim, dstate], null means zero

  // Outputs; null when not wanted.
  T* y = nullptr;            // [batch, seqlen, dim]
  T* final_state = nullptr;  // [sequences, dim, dstate]

  // The backward runs when `backward` is set. Upstream gradients; null means zero.
  bool backward = false;
  const T* dy = nullptr;            // [batch, seqlen, dim]
  const T* dfinal_state = nullptr;  // [sequences, dim, dstate]

  // Gradients of the inputs, shaped like them; null when not wanted.
  T* du = nullptr;
  T* ddelta = nullptr;
  T* dA = nullptr;
  T* dD = nullptr;
  T* dz = nullptr;
  T* ddelta_bias = nullptr;
  T* dinitial_state = nullptr;

  // Steps of sequence s on the time axis of [batch * seqlen].
  int64_t Begin(int64_t s) const { return cu_seqlens != nullptr ? cu_seqlens[s] : s * seqlen; }
  int64_t End(int64_t s) const { return Begin(s + 1); }
};

}  // namespace scanserve::selective_scan
