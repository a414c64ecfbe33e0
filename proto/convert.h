// The only code that knows both protobuf and our types; server and client use it.
// All errors are INVALID_ARGUMENT and name the field or parameter, unless said otherwise.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/call_options.h"
#include "kernels/spec/attributes.h"
#include "kernels/spec/model.h"

namespace google::protobuf {
template <class Key, class Value>
class Map;
}  // namespace google::protobuf
namespace inference {
class InferParameter;
}  // namespace inference
namespace scanserve::v1 {
enum DataType : int;
class Attribute;
class KernelRequest;
class KernelResponse;
class Tensor;
}  // namespace scanserve::v1

namespace scanserve {

// Text of a client as it may stand in an error message: cut after `max_size` bytes, and a '?' for
// every byte that is not printable ASCII.
std::string Printable(absl::string_view text, size_t max_size = 64);

// Element types.
v1::DataType ToProto(DType dtype);
absl::StatusOr<DType> FromProto(v1::DataType dtype);
// A datatype of the Open Inference Protocol, spelt exactly: "FP32".
absl::StatusOr<DType> ParseDatatype(absl::string_view datatype);

// Name, dtype and shape of a tensor; the bytes are left alone.
void ToProto(absl::string_view name, const TensorMeta& meta, v1::Tensor& tensor);
absl::StatusOr<TensorMeta> FromProto(const v1::Tensor& tensor);
// Checks rank and sizes before anything is computed from them; `name` is for the message.
absl::StatusOr<TensorMeta> MakeMeta(absl::string_view name, DType dtype,
                                    absl::Span<const int64_t> shape);

// Values of attributes. The Open Inference Protocol has no lists: they travel as JSON text.
void ToProto(const AttributeValue& value, v1::Attribute& attribute);
absl::StatusOr<AttributeValue> FromProto(const v1::Attribute& attribute);
void ToProto(const AttributeValue& value, inference::InferParameter& parameter);
absl::StatusOr<AttributeValue> FromProto(const inference::InferParameter& parameter);

// scanserve.v1: everything of a request but operator, tensors, outputs and id.
void ToProto(const CallOptions& options, const Attributes& attributes, v1::KernelRequest& request);
// UNIMPLEMENTED: contexts, sequences and residuals.
absl::Status FromProto(const v1::KernelRequest& request, CallOptions& options,
                       Attributes& attributes);

// Open Inference Protocol: the parameters of a request. An attribute keeps the type that it came
// with; Bind converts it.
using ParameterMap = google::protobuf::Map<std::string, inference::InferParameter>;
void ToProto(const CallOptions& options, const Attributes& attributes, ParameterMap& parameters);
// UNIMPLEMENTED as above. A name that is neither an option nor an attribute of the operator is
// refused, unless it begins with "triton_".
absl::Status FromProto(const OpSpec& spec, const ParameterMap& parameters, CallOptions& options,
                       Attributes& attributes);

// How a call went. `timing`: with the figures.
void ToProto(const CallReport& report, bool timing, v1::KernelResponse& response);
void ToProto(const CallReport& report, bool timing, ParameterMap& parameters);
CallReport FromProto(const v1::KernelResponse& response);
CallReport FromProto(const ParameterMap& parameters);

}  // namespace scanserve
