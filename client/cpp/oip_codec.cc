// Tensor calls as the Open Inference Protocol has them: all bytes raw.
#include "absl/strings/str_cat.h"
#include "client/cpp/codec.h"
#include "common/status_macros.h"
#include "inference/grpc_service.pb.h"
#include "proto/convert.h"

namespace scanserve {
namespace {

class OipCodec final : public Codec {
 public:
  std::string MethodOf(Direction) const override {
    return "/inference.GRPCInferenceService/ModelInfer";
  }

  absl::StatusOr<std::vector<MessagePiece>> Encode(absl::string_view op, Direction direction,
                                                   absl::Span<const InputTensor> inputs,
                                                   const CallSettings& settings) const override {
    inference::ModelInferRequest request;
    request.set_model_name(absl::StrCat(op, "_", NameOf(direction)));
    ToProto(settings.options, settings.attributes, *request.mutable_parameters());
    for (const std::string& output : settings.outputs) request.add_outputs()->set_name(output);
    std::vector<OutgoingPayload> payloads;
    for (const InputTensor& input : inputs) {
      auto* tensor = request.add_inputs();
      tensor->set_name(std::string(input.name));
      tensor->set_datatype(std::string(NameOf(input.view.meta.dtype)));
      for (const int64_t dim : input.view.meta.shape) tensor->add_shape(dim);
      payloads.push_back({"", BytesOf(input)});
    }
    return JoinPayloads(request.SerializeAsString(), kRawInputContents, payloads);
  }

  absl::StatusOr<CallReply> Decode(absl::Span<const absl::Span<const char>> bytes) const override {
    SCANSERVE_ASSIGN_OR_RETURN(const SplitMessage message,
                               SplitPayloads(bytes, kRawOutputContents));
    inference::ModelInferResponse response;
    if (!response.ParseFromString(message.header) ||
        static_cast<size_t>(response.outputs_size()) != message.payloads.size()) {
      return absl::InternalError("it is no ModelInferResponse with one raw entry per output");
    }
    CallReply reply;
    reply.report = FromProto(response.parameters());
    for (int i = 0; i < response.outputs_size(); ++i) {
      const auto& output = response.outputs(i);
      SCANSERVE_ASSIGN_OR_RETURN(const DType dtype, ParseDatatype(output.datatype()));
      SCANSERVE_ASSIGN_OR_RETURN(
          TensorMeta meta,
          MakeMeta(output.name(), dtype,
                   {output.shape().data(), static_cast<size_t>(output.shape_size())}));
      SCANSERVE_ASSIGN_OR_RETURN(NamedTensor tensor,
                                 MakeOutput(output.name(), std::move(meta), message.payloads[i]));
      reply.outputs.push_back(std::move(tensor));
    }
    return reply;
  }
};

}  // namespace

std::unique_ptr<Codec> MakeOipCodec() { return std::make_unique<OipCodec>(); }

}  // namespace scanserve
