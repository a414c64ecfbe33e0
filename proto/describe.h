// How operators and models present themselves: the contract as messages of both protocols.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/spec/model.h"

namespace inference {
class ModelConfig;
class ModelMetadataResponse;
}  // namespace inference
namespace scanserve::v1 {
class OperatorDescription;
}  // namespace scanserve::v1

namespace scanserve {

// The version of every model: that of the contract.
inline constexpr char kModelVersion[] = "1";

// `models` are those of the operator; others are skipped. `implementations` in order of preference.
void Describe(const OpSpec& spec, absl::Span<const Model* const> models,
              absl::Span<const absl::string_view> implementations,
              v1::OperatorDescription& description);

// Triton's view. Inputs: the required ones first. Outputs: those that are returned when none is
// named, so that clients which ask for every listed output may leave out optional inputs.
// Every dimension that is not a number is -1; the datatype is FP32, of index tensors INT32.
void Describe(const Model& model, inference::ModelMetadataResponse& metadata);
void Describe(const Model& model, inference::ModelConfig& config);

}  // namespace scanserve
