// What the machine can do at the most: the denominators of the roofline.
#pragma once

#include <memory>

#include "common/parallel_for.h"
#include "kernels/spec/op_spec.h"

namespace scanserve {

struct Ceilings {
  double fma_slots_per_s = 0;   // scalar lanes of fused multiply-add
  double exps_per_s = 0;        // by the fastest exponential of the kernels, error below 3e-7
  double copy_bytes_per_s = 0;  // read and written, between buffers that no cache holds
};

// The larger of each.
Ceilings Best(const Ceilings& a, const Ceilings& b);

// The least time that `work` can take: its scarcest resource fully used.
double FloorSeconds(const Work& work, const Ceilings& ceilings);

// Measures with all threads of an arena. Machines that others use too give a different answer every
// time: measure several times, in turn with whatever is compared, and keep the best.
class CeilingMeter {
 public:
  // `arena` must outlive the meter. Takes 128 MiB of memory.
  explicit CeilingMeter(ThreadArena& arena);
  ~CeilingMeter();

  // One slice of some milliseconds for each ceiling.
  Ceilings Measure();

 private:
  struct Buffers;
  ThreadArena& arena_;
  std::unique_ptr<Buffers> buffers_;
};

// The best of ten measurements, in about a second.
Ceilings Measure(ThreadArena& arena);

}  // namespace scanserve
