#include "server/rpc/oip_infer.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "inference/grpc_service.pb.h"
#include "proto/convert.h"
#include "proto/describe.h"
#include "proto/payload_split.h"

namespace scanserve {
namespace {

using inference::InferTensorContents;
using inference::ModelInferRequest;
using InputTensorProto = ModelInferRequest::InferInputTensor;

// The memory behind a call's payloads.
struct InferMessage {
  explicit InferMessage(ReceivedBytes received) : bytes(std::move(received)) {}
  ReceivedBytes bytes;
  ModelInferRequest request;
};

// Parameters of a tensor or of a requested output. None is served; those of Triton's own are let
// pass.
absl::Status CheckTensorParameters(const std::string& tensor, const ParameterMap& parameters) {
  for (const auto& [name, parameter] : parameters) {
    if (absl::StartsWith(name, "triton_")) continue;
    if (absl::StartsWith(name, "shared_memory_")) {
      return absl::UnimplementedError(
          absl::StrCat("tensor '", Printable(tensor),
                       "': shared memory is not served; send and receive tensors "
                       "in the message"));
    }
    if (name == "classification") {
      return absl::InvalidArgumentError(absl::StrCat(
          "output '", Printable(tensor), "': classification is not served; ask for the tensor"));
    }
    return absl::InvalidArgumentError(absl::StrCat("tensor '", Printable(tensor),
                                                   "': unknown parameter '", Printable(name), "'"));
  }
  return absl::OkStatus();
}

template <typename Element>
void Append(const google::protobuf::RepeatedField<Element>& values, Payload& payload) {
  payload.Append({reinterpret_cast<const char*>(values.data()),
                  static_cast<size_t>(values.size()) * sizeof(Element)});
}

size_t CountFilledFields(const InferTensorContents& contents) {
  return (contents.bool_contents().empty() ? 0 : 1) + (contents.int_contents().empty() ? 0 : 1) +
         (contents.int64_contents().empty() ? 0 : 1) + (contents.uint_contents().empty() ? 0 : 1) +
         (contents.uint64_contents().empty() ? 0 : 1) + (contents.fp32_contents().empty() ? 0 : 1) +
         (contents.fp64_contents().empty() ? 0 : 1) + (contents.bytes_contents().empty() ? 0 : 1);
}

// The elements of `contents` in the field that belongs to `dtype`, where they lie.
absl::StatusOr<Payload> TypedPayload(const std::string& name, DType dtype,
                                     const InferTensorContents& contents) {
  Payload payload;
  switch (dtype) {
    case DType::kFP32:
      Append(contents.fp32_contents(), payload);
      break;
    case DType::kFP64:
      Append(contents.fp64_contents(), payload);
      break;
    case DType::kINT32:
      Append(contents.int_contents(), payload);
      break;
    case DType::kINT64:
      Append(contents.int64_contents(), payload);
      break;
    case DType::kFP16:
    case DType::kBF16:
      return absl::InvalidArgumentError(
          absl::StrCat("input '", Printable(name), "': ", NameOf(dtype),
                       " has no typed contents, expected raw_input_contents"));
  }
  if (CountFilledFields(contents) > (payload.size > 0 ? 1u : 0u)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input '", Printable(name), "': contents has a field that is not that of ", NameOf(dtype)));
  }
  return payload;
}

absl::Status ReadInput(const InputTensorProto& input, const Payload* raw, Call& call) {
  SCANSERVE_RETURN_IF_ERROR(CheckTensorParameters(input.name(), input.parameters()));
  const absl::StatusOr<DType> dtype = ParseDatatype(input.datatype());
  if (!dtype.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("input '", Printable(input.name()), "': ", dtype.status().message()));
  }
  SCANSERVE_ASSIGN_OR_RETURN(TensorMeta meta, MakeMeta(input.name(), *dtype, input.shape()));
  Payload payload;
  if (raw != nullptr) {
    if (input.has_contents()) {
      return absl::InvalidArgumentError(
          absl::StrCat("contents field must not be specified when using raw_input_contents, but "
                       "input '",
                       Printable(input.name()), "' has it"));
    }
    payload = *raw;
  } else {
    SCANSERVE_ASSIGN_OR_RETURN(payload, TypedPayload(input.name(), *dtype, input.contents()));
  }
  SCANSERVE_ASSIGN_OR_RETURN(CallInput call_input, MakeInput(*call.model, input.name(),
                                                             std::move(meta), std::move(payload)));
  call.inputs.push_back(std::move(call_input));
  return absl::OkStatus();
}

absl::Status ReadTensors(const ModelInferRequest& request, absl::Span<const Payload> raw,
                         Call& call) {
  const bool is_raw = !raw.empty();
  if (is_raw && raw.size() != static_cast<size_t>(request.inputs_size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(call.model->name, ": raw_input_contents has ", raw.size(),
                     " entries, expected one for each of ", request.inputs_size(), " inputs"));
  }
  for (int i = 0; i < request.inputs_size(); ++i) {
    SCANSERVE_RETURN_IF_ERROR(ReadInput(request.inputs(i), is_raw ? &raw[i] : nullptr, call));
  }
  for (const auto& output : request.outputs()) {
    SCANSERVE_RETURN_IF_ERROR(CheckTensorParameters(output.name(), output.parameters()));
    call.outputs.push_back(output.name());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<MessagePiece>> EncodeInfer(const Model& model, const std::string& id,
                                                      bool timing, const CallResult& result) {
  inference::ModelInferResponse response;
  response.set_model_name(model.name);
  response.set_model_version(std::string(kModelVersion));
  response.set_id(id);
  ToProto(result.report, timing, *response.mutable_parameters());
  std::vector<OutgoingPayload> payloads;
  for (const CallOutput& output : result.outputs) {
    auto& tensor = *response.add_outputs();
    tensor.set_name(output.name);
    tensor.set_datatype(std::string(NameOf(output.meta.dtype)));
    tensor.mutable_shape()->Assign(output.meta.shape.begin(), output.meta.shape.end());
    payloads.push_back({"",
                        {static_cast<const char*>(output.buffer.data()),
                         static_cast<size_t>(output.meta.ByteSize())}});
  }
  return JoinPayloads(response.SerializeAsString(), kRawOutputContents, payloads);
}

}  // namespace

absl::StatusOr<const Model*> FindModelVersion(const Catalog& catalog, absl::string_view name,
                                              absl::string_view version) {
  int64_t number = 1;
  if (!version.empty() && (!absl::SimpleAtoi(version, &number) || number < 0)) {
    return absl::InvalidArgumentError(absl::StrCat("model version is '", Printable(version),
                                                   "', expected a whole number or nothing"));
  }
  SCANSERVE_ASSIGN_OR_RETURN(const Model* model, catalog.FindModel(name));
  if (number != 1) {
    return absl::NotFoundError(absl::StrCat("Request for unknown model: '", model->name,
                                            "' version ", number, " is not found"));
  }
  return model;
}

absl::Status ReadInfer(const Catalog& catalog, ReceivedBytes bytes, IncomingCall& incoming) {
  const auto message = std::make_shared<InferMessage>(std::move(bytes));
  ModelInferRequest& request = message->request;
  SCANSERVE_ASSIGN_OR_RETURN(const SplitMessage split,
                             SplitPayloads(message->bytes.spans(), kRawInputContents));
  if (!request.ParseFromString(split.header)) {
    return absl::InvalidArgumentError("malformed message: not a ModelInferRequest");
  }
  Call& call = incoming.call;
  SCANSERVE_ASSIGN_OR_RETURN(
      call.model, FindModelVersion(catalog, request.model_name(), request.model_version()));
  SCANSERVE_RETURN_IF_ERROR(
      FromProto(*call.model->spec, request.parameters(), call.options, call.attributes));
  SCANSERVE_RETURN_IF_ERROR(ReadTensors(request, split.payloads, call));
  call.keep_alive = message;
  incoming.encode = [model = call.model, id = request.id(),
                     timing = call.options.timing](const CallResult& result) {
    return EncodeInfer(*model, id, timing, result);
  };
  return absl::OkStatus();
}

}  // namespace scanserve
