#include "proto/describe.h"

#include <cstdint>
#include <string>

#include "inference/grpc_service.pb.h"
#include "inference/model_config.pb.h"
#include "proto/convert.h"
#include "scanserve/v1/kernel_service.pb.h"

namespace scanserve {
namespace {

constexpr char kPlatform[] = "scanserve";

absl::string_view RuleName(DTypeRule rule) {
  switch (rule) {
    case DTypeRule::kActivation:
      return "T";
    case DTypeRule::kParameter:
      return "parameter";
    case DTypeRule::kIndex:
      return "index";
  }
  return "";
}

void DescribeTensor(const TensorRow& row, v1::TensorDescription& tensor) {
  tensor.set_name(row.name);
  tensor.set_output(row.role == Role::kOutput);
  for (const ShapeForm& form : row.forms) {
    v1::ShapeDescription& shape = *tensor.add_shapes();
    shape.set_name(form.name);
    for (const std::string& dim : form.dims) shape.add_dims(dim);
  }
  tensor.set_dtype(std::string(RuleName(row.dtype)));
  tensor.set_optional(row.optional);
  tensor.set_differentiable(row.differentiable);
  tensor.set_doc(row.doc);
}

void DescribeModel(const Model& model, v1::ModelDescription& description) {
  description.set_name(model.name);
  for (const ModelRow& row : model.inputs) {
    if (row.required) {
      description.add_required_inputs(row.name);
    } else {
      description.add_optional_inputs(row.name);
    }
  }
  for (const ModelRow& row : model.outputs) {
    if (row.required) {
      description.add_outputs(row.name);
    } else {
      description.add_optional_outputs(row.name);
    }
  }
}

const TensorRow& RowOf(const Model& model, const ModelRow& row) {
  return model.spec->tensors[row.slot.row];
}

DType ShownDType(const TensorRow& row) {
  return row.dtype == DTypeRule::kIndex ? DType::kINT32 : DType::kFP32;
}

// The size of a dimension where it is fixed, -1 where it varies.
int64_t ShownDim(const std::string& dim) {
  const DimExpression expression = ParseDim(dim);
  return expression.axis.empty() ? expression.plus : -1;
}

void Describe(const Model& model, const ModelRow& model_row,
              inference::ModelMetadataResponse::TensorMetadata& tensor) {
  const TensorRow& row = RowOf(model, model_row);
  tensor.set_name(model_row.name);
  tensor.set_datatype(std::string(NameOf(ShownDType(row))));
  for (const std::string& dim : row.forms.front().dims) tensor.add_shape(ShownDim(dim));
}

// ModelInput or ModelOutput.
template <typename Tensor>
void DescribeConfigured(const Model& model, const ModelRow& model_row, Tensor& tensor) {
  const TensorRow& row = RowOf(model, model_row);
  tensor.set_name(model_row.name);
  tensor.set_data_type(row.dtype == DTypeRule::kIndex ? inference::TYPE_INT32
                                                      : inference::TYPE_FP32);
  for (const std::string& dim : row.forms.front().dims) tensor.add_dims(ShownDim(dim));
}

}  // namespace

void Describe(const OpSpec& spec, absl::Span<const Model* const> models,
              absl::Span<const absl::string_view> implementations,
              v1::OperatorDescription& description) {
  description.set_name(spec.name);
  description.set_summary(spec.summary);
  description.set_source(spec.source);
  for (const DType dtype : spec.dtypes) description.add_dtypes(std::string(NameOf(dtype)));
  for (const AxisRow& row : spec.axes) {
    v1::AxisDescription& axis = *description.add_axes();
    axis.set_name(row.name);
    axis.set_min(row.min);
    axis.set_max(row.max);
    axis.set_doc(row.doc);
  }
  for (const TensorRow& row : spec.tensors) DescribeTensor(row, *description.add_tensors());
  for (const AttributeRow& row : spec.attributes) {
    v1::AttributeDescription& attribute = *description.add_attributes();
    attribute.set_name(row.name);
    ToProto(row.default_value, *attribute.mutable_default_value());
    for (const AttributeValue& value : row.allowed) ToProto(value, *attribute.add_allowed());
    attribute.set_doc(row.doc);
  }
  for (const Constraint& rule : spec.constraints) description.add_constraints(rule.sentence);
  for (const Model* model : models) {
    if (model->spec == &spec) DescribeModel(*model, *description.add_models());
  }
  for (const absl::string_view name : implementations) {
    description.add_implementations(std::string(name));
  }
}

void Describe(const Model& model, inference::ModelMetadataResponse& metadata) {
  metadata.set_name(model.name);
  metadata.add_versions(std::string(kModelVersion));
  metadata.set_platform(kPlatform);
  for (const ModelRow& row : model.inputs) Describe(model, row, *metadata.add_inputs());
  for (const ModelRow& row : model.outputs) {
    if (row.required) Describe(model, row, *metadata.add_outputs());
  }
}

void Describe(const Model& model, inference::ModelConfig& config) {
  config.set_name(model.name);
  config.set_platform(kPlatform);
  config.set_backend(kPlatform);
  config.set_max_batch_size(0);  // parameters have no batch axis, so shapes carry it themselves
  config.mutable_model_transaction_policy()->set_decoupled(false);
  for (const ModelRow& row : model.inputs) {
    inference::ModelInput& input = *config.add_input();
    DescribeConfigured(model, row, input);
    input.set_optional(!row.required);
  }
  for (const ModelRow& row : model.outputs) {
    if (row.required) DescribeConfigured(model, row, *config.add_output());
  }
}

}  // namespace scanserve
