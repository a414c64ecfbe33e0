// Tensor calls as scanserve.v1.KernelService has them.
#include "client/cpp/codec.h"
#include "common/status_macros.h"
#include "proto/convert.h"
#include "scanserve/v1/kernel_service.pb.h"

namespace scanserve {
namespace {

class KernelCodec final : public Codec {
 public:
  std::string MethodOf(Direction direction) const override {
    switch (direction) {
      case Direction::kForward:
        return "/scanserve.v1.KernelService/Forward";
      case Direction::kBackward:
        return "/scanserve.v1.KernelService/Backward";
      case Direction::kForwardBackward:
        return "/scanserve.v1.KernelService/ForwardBackward";
    }
    return "";
  }

  absl::StatusOr<std::vector<MessagePiece>> Encode(absl::string_view op, Direction,
                                                   absl::Span<const InputTensor> inputs,
                                                   const CallSettings& settings) const override {
    v1::KernelRequest request;
    request.set_operator_name(std::string(op));
    for (const std::string& output : settings.outputs) request.add_outputs(output);
    ToProto(settings.options, settings.attributes, request);
    std::vector<OutgoingPayload> payloads;
    for (const InputTensor& input : inputs) {
      v1::Tensor tensor;
      ToProto(input.name, input.view.meta, tensor);
      payloads.push_back({tensor.SerializeAsString(), BytesOf(input)});
    }
    return JoinPayloads(request.SerializeAsString(), kRequestTensorData, payloads);
  }

  absl::StatusOr<CallReply> Decode(absl::Span<const absl::Span<const char>> bytes) const override {
    SCANSERVE_ASSIGN_OR_RETURN(const SplitMessage message,
                               SplitPayloads(bytes, kResponseTensorData));
    v1::KernelResponse response;
    if (!response.ParseFromString(message.header) ||
        static_cast<size_t>(response.outputs_size()) != message.payloads.size()) {
      return absl::InternalError("it is no KernelResponse");
    }
    CallReply reply;
    reply.report = FromProto(response);
    for (int i = 0; i < response.outputs_size(); ++i) {
      SCANSERVE_ASSIGN_OR_RETURN(TensorMeta meta, FromProto(response.outputs(i)));
      SCANSERVE_ASSIGN_OR_RETURN(
          NamedTensor output,
          MakeOutput(response.outputs(i).name(), std::move(meta), message.payloads[i]));
      reply.outputs.push_back(std::move(output));
    }
    return reply;
  }
};

}  // namespace

std::unique_ptr<Codec> MakeKernelCodec() { return std::make_unique<KernelCodec>(); }

}  // namespace scanserve
