#include "kernels/spec/model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace scanserve {
namespace {

const ModelRow* Find(const std::vector<ModelRow>& rows, absl::string_view name) {
  const auto it = std::find_if(rows.begin(), rows.end(),
                               [name](const ModelRow& row) { return row.name == name; });
  return it == rows.end() ? nullptr : &*it;
}

void RequiredFirst(std::vector<ModelRow>& rows) {
  std::stable_partition(rows.begin(), rows.end(), [](const ModelRow& row) { return row.required; });
}

}  // namespace

const ModelRow* Model::FindInput(absl::string_view tensor_name) const {
  return Find(inputs, tensor_name);
}

const ModelRow* Model::FindOutput(absl::string_view tensor_name) const {
  return Find(outputs, tensor_name);
}

Model DeriveModel(const OpSpec& spec, Direction direction) {
  Model model;
  model.name = absl::StrCat(spec.name, "_", NameOf(direction));
  model.spec = &spec;
  model.direction = direction;
  const bool forward = direction != Direction::kBackward;
  const bool backward = direction != Direction::kForward;
  bool first_upstream = true;
  for (size_t i = 0; i < spec.tensors.size(); ++i) {
    const TensorRow& row = spec.tensors[i];
    const int index = static_cast<int>(i);
    const std::string gradient = absl::StrCat("d", row.name);
    if (row.role == Role::kInput) {
      model.inputs.push_back({row.name, {index, false}, !row.optional});
      if (backward && row.differentiable) {
        model.outputs.push_back({gradient, {index, true}, !row.optional});
      }
      continue;
    }
    if (forward) model.outputs.push_back({row.name, {index, false}, true});
    if (backward && row.differentiable) {
      // Any one upstream gradient is enough; metadata shows the first output's as the usual one.
      model.inputs.push_back({gradient, {index, true}, first_upstream});
      first_upstream = false;
    }
  }
  RequiredFirst(model.inputs);
  // Outputs of the forward direction come before gradients.
  std::stable_partition(model.outputs.begin(), model.outputs.end(),
                        [](const ModelRow& row) { return !row.slot.is_gradient; });
  return model;
}

}  // namespace scanserve
