// Models: an operator in one direction, as it is named on the wire. The directions other than
// forward are derived here from the operator's contract and never written by hand.
#pragma once

#include <string>
#include <vector>

#include "kernels/spec/op_spec.h"

namespace scanserve {

// A tensor of a model: either an operator's row itself or the gradient of that row.
struct Slot {
  int row = -1;
  bool is_gradient = false;
  friend bool operator==(const Slot& a, const Slot& b) = default;
};

struct ModelRow {
  std::string name;  // "u", "dy"
  Slot slot;
  bool required = true;  // inputs: must be sent. outputs: returned when no output is named
};

// Immutable after creation; lives as long as the catalog.
struct Model {
  std::string name;  // "selective_scan_bwd"
  const OpSpec* spec = nullptr;
  Direction direction = Direction::kForward;
  std::vector<ModelRow> inputs;  // required ones first
  std::vector<ModelRow> outputs;

  const ModelRow* FindInput(absl::string_view tensor_name) const;
  const ModelRow* FindOutput(absl::string_view tensor_name) const;
};

// forward: the contract's inputs and outputs. backward: inputs and `d<output>` (absent means zero)
// in, `d<input>` of every differentiable input out. forward+backward: both in, both out.
Model DeriveModel(const OpSpec& spec, Direction direction);

}  // namespace scanserve
