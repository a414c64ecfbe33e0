// Runs one operator call the hard way: every output between guard bytes and filled with NaN before,
// the workspace too, so that a write beyond an end or a read of what was never written shows.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/spec/op_case.h"

namespace scanserve {

// A call that can be changed before it is run.
struct Problem {
  const Model* model = nullptr;
  std::vector<NamedTensor> inputs;
  Attributes attributes;

  Tensor& operator[](absl::string_view name);
  bool Has(absl::string_view name) const;
  // Gives an input, present or not, these values (converted to its dtype) in this shape.
  void Set(absl::string_view name, DType dtype, Shape shape, absl::Span<const double> values);
  void Remove(absl::string_view name);
  // Replaces every value of an input by f(value).
  void Map(absl::string_view name, const std::function<double(double)>& f);
};

// Of a case string; see kernels/spec/op_case.h.
Problem MakeProblem(absl::string_view case_text);

// The same values in FP64 (in FP64 every value of FP32 is exact).
Problem InFp64(const Problem& problem);

using Results = std::map<std::string, Tensor>;

// Binds, plans and runs; fails the test on any error or broken guard. No names: all outputs.
Results RunGuarded(const Problem& problem, absl::string_view implementation, int threads = 2,
                   std::vector<std::string> outputs = {});

// max|got - want| / max(max|want|, floor); infinite when a finite value is wanted and none is
// there.
double RelativeError(const Tensor& got, const Tensor& want, double floor = 0);

// The largest relative error over all of `want`, by tensor; a gradient counts against at least 1e-6
// of the largest gradient, as the golden vectors do.
std::map<std::string, double> Errors(const Results& got, const Results& want);

// Fails where an error is above `tolerance`, naming tensor and error.
void ExpectClose(const Results& got, const Results& want, double tolerance);

// Fails unless the two have the same tensors with the same bits.
void ExpectSameBits(const Results& got, const Results& want);
bool SameBits(const Tensor& a, const Tensor& b);

// Elements [begin, end) of the outermost dimension.
Tensor Rows(const Tensor& tensor, int64_t begin, int64_t end);
// The same, of the second dimension of a tensor whose first is 1.
Tensor Steps(const Tensor& tensor, int64_t begin, int64_t end);

}  // namespace scanserve
