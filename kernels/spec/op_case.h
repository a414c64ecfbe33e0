// The case string: one line that names a problem in tests, benchmarks, load mixes and logs, e.g.
// selective_scan_bwd:fp32:batch=2,seqlen=129,dim=64,dstate=16,delta_softplus=true,with=D+z:fused:cpu:seed=7
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/spec/bind.h"
#include "kernels/spec/catalog.h"

namespace scanserve {

struct OpCase {
  const Model* model = nullptr;
  DType dtype = DType::kFP32;
  Dims dims;                      // axes as given; those not given are not set
  Attributes attributes;          // as given
  std::vector<std::string> with;  // optional inputs that are present, `with=D+z`
  std::vector<std::pair<std::string, std::string>> forms;  // tensor, form: `B=grouped`
  std::string implementation = "auto";
  std::string device = "cpu";
  uint64_t seed = 0;
};

// The fields after the sizes may be left out from the right. INVALID_ARGUMENT says which part is
// wrong and what was expected.
absl::StatusOr<OpCase> ParseCase(absl::string_view text, const Catalog& catalog);
std::string ToString(const OpCase& op_case);
// The case string of a bound call, for log lines and error messages.
std::string CaseString(const BoundOp& bound, absl::string_view implementation,
                       absl::string_view device);

// Valid inputs for the case, filled from the seed as the contract's distributions say: the same
// values on every machine, each tensor independent of which others are present. Values are exact
// in the case's dtype. INVALID_ARGUMENT when an axis is missing or the case breaks the contract,
// RESOURCE_EXHAUSTED when there is no memory.
absl::StatusOr<std::vector<NamedTensor>> MakeInputs(const OpCase& op_case);

std::vector<InputTensor> ViewsOf(const std::vector<NamedTensor>& tensors);

}  // namespace scanserve
