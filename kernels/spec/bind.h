// Bind: the one validator. Server, client, tests and tools all pass through it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/spec/model.h"

namespace scanserve {

// A tensor as a caller names it. `view.data` may be null, except for index tensors (cu_seqlens),
// whose values Bind reads once and keeps a private copy of.
struct InputTensor {
  absl::string_view name;
  TensorView view;
};

// Where a call's tensors lie: one entry per row of the operator. Absent tensors have null data.
struct Arguments {
  std::vector<TensorView> values;     // inputs to read; outputs to write where wanted
  std::vector<TensorView> gradients;  // of outputs: upstream, read; of inputs: written where wanted

  explicit Arguments(const OpSpec& spec)
      : values(spec.tensors.size()), gradients(spec.tensors.size()) {}
  TensorView& operator[](Slot slot) {
    return slot.is_gradient ? gradients[slot.row] : values[slot.row];
  }
};

// A call that passed the contract: every size known, nothing left to check but capability.
struct BoundOp {
  const Model* model = nullptr;
  DType dtype = DType::kFP32;  // T
  Dims dims;                   // every axis of the spec is set
  Attributes attributes;       // every attribute of the spec, defaults filled in
  // Per row of the operator: which of its shape forms the tensor has, -1 when absent. Outputs are
  // always present with form 0.
  std::vector<int> forms;
  std::vector<Slot> inputs;   // in the caller's order
  std::vector<Slot> outputs;  // in the order asked for
  std::vector<std::string> output_names;
  std::vector<int64_t> cu_seqlens;  // empty when not packed

  const OpSpec& spec() const { return *model->spec; }
  bool Has(int row) const { return forms[row] >= 0; }
  bool HasInput(Slot slot) const;
  bool Wants(Slot slot) const;
  // Dtype and shape of a present tensor, or of its gradient; INT64 stands for either index type.
  TensorMeta MetaOf(Slot slot) const;
  // Work of this call, with the bytes of its tensors.
  Work TotalWork() const;
};

// Checks `inputs`, `attributes` and the names of the wanted `outputs` (empty: all, for a backward
// every differentiable input that is present) against `model`. INVALID_ARGUMENT names operator,
// tensor or attribute, axis, what came and what was expected.
absl::StatusOr<BoundOp> Bind(const Model& model, absl::Span<const InputTensor> inputs,
                             const Attributes& attributes, absl::Span<const std::string> outputs);

}  // namespace scanserve
