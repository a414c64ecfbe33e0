// Golden vectors: float64 inputs, outputs and gradients of an operator in a `.safetensors` file,
// and the rules in `tolerances.json` that say which error is allowed.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/spec/bind.h"
#include "kernels/spec/model.h"

namespace scanserve {

struct GoldenCase {
  std::string name;  // of the file, without folder and ending
  std::string op;
  Attributes attributes;
  // Named as in the contract. Floats are FP64 as in the file.
  std::vector<NamedTensor> inputs;     // "u"
  std::vector<NamedTensor> upstream;   // "dy"; an output without one has a zero gradient
  std::vector<NamedTensor> outputs;    // "y", expected
  std::vector<NamedTensor> gradients;  // "du", expected
};

// INVALID_ARGUMENT when the file is not a golden vector.
absl::StatusOr<GoldenCase> ReadGolden(const std::string& path);

// The inputs of `model` (which must be of the golden's operator) with activation dtype `dtype`:
// forward inputs, and for the other directions the upstream gradients.
std::vector<NamedTensor> GoldenInputs(const GoldenCase& golden, const Model& model, DType dtype);

// `tolerances.json`. Immutable.
class Tolerances {
 public:
  // INVALID_ARGUMENT when the file is not one that this class understands.
  static absl::StatusOr<Tolerances> Read(const std::string& path);

  // The error allowed for a tensor of a golden file; nullopt when the file is skipped in `dtype` or
  // nothing is said about it.
  std::optional<double> Of(absl::string_view golden, absl::string_view tensor, bool is_gradient,
                           DType dtype) const;

 private:
  struct Rule {
    double outputs = 0;
    double gradients = 0;
    std::map<std::string, std::map<std::string, double>> exceptions;  // file, tensor or "*"
    std::vector<std::string> skip;                                    // files
  };
  std::map<DType, Rule> rules_;
};

struct TensorError {
  std::string tensor;
  double error = 0;
  double tolerance = 0;
  bool ok = false;
};

// max|got - want| / max(max|want|, floor). Non-finite wanted values must be matched exactly; any
// mismatch of them, a non-finite value where a finite one is wanted or a difference over a zero
// denominator is infinite. Shapes must agree, otherwise the error is infinite too.
double MaxRelativeError(const Tensor& got, const Tensor& want, double floor);

// Compares what `model` returned for a golden case with what the file expects of it, tensor by
// tensor; one that `got` lacks has an infinite error. Empty when the file is skipped in `dtype`.
std::vector<TensorError> CheckGolden(const GoldenCase& golden, const Tolerances& tolerances,
                                     const Model& model, DType dtype,
                                     absl::Span<const NamedTensor> got);

// One row of `invalid.json`: a forward call that the contract must reject or accept.
struct ContractCase {
  std::string op;
  std::string why;
  bool accept = false;
  Attributes attributes;
  std::vector<NamedTensor> inputs;
};

absl::StatusOr<std::vector<ContractCase>> ReadContractCases(const std::string& path);

}  // namespace scanserve
