// The C++ client: calls an operator on a server as if it were a function.
//
//   auto client = Client::Connect("127.0.0.1:8001");
//   auto reply = (*client)->Forward("selective_scan", {{"u", u.view()}, {"delta", delta.view()},
//   ...}); const Tensor* y = reply->Find("y");
//
// No exceptions: every failure is a Status with the server's code and sentence. gRPC and protobuf
// stay out of this header.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/call_options.h"
#include "kernels/spec/bind.h"

namespace scanserve {

namespace v1 {
class DescribeResponse;
class ServerInfoResponse;
}  // namespace v1

enum class Protocol {
  kKernel,  // scanserve.v1.KernelService
  kOip,     // Open Inference Protocol, inference.GRPCInferenceService
};

// "kernel", "oip"; INVALID_ARGUMENT for anything else.
absl::string_view NameOf(Protocol protocol);
absl::StatusOr<Protocol> ParseProtocol(absl::string_view name);

struct ClientOptions {
  Protocol protocol = Protocol::kKernel;  // of tensor calls; both give the same bits
  // Checks a call against the contract before anything is sent, with the server's sentences.
  // Without it the server alone judges (and may know operators that this client does not).
  bool validate = true;
  // Largest reply that is accepted; a reply beyond it is RESOURCE_EXHAUSTED.
  size_t max_reply_bytes = (size_t{1} << 31) - 1;
  // For Connect, Describe, ServerInfo and IsServing.
  std::chrono::milliseconds control_timeout{5000};
};

struct CallSettings {
  Attributes attributes;             // those not given have the contract's defaults
  std::vector<std::string> outputs;  // names wanted; empty: all
  CallOptions options;
  // The whole call, queue and transport included; DEADLINE_EXCEEDED after it. Zero: no limit.
  std::chrono::milliseconds timeout{0};
};

struct CallReply {
  std::vector<NamedTensor> outputs;  // in the order asked for
  // Which implementation ran; the figures are zero unless `options.timing` was set.
  CallReport report;
  size_t request_bytes = 0;  // of the message on the wire
  size_t response_bytes = 0;
  std::chrono::nanoseconds round_trip{0};  // from the first byte encoded to the last one decoded

  // Null when there is no such output.
  const Tensor* Find(absl::string_view name) const;
};

// One connection. Thread-safe: calls from several threads share it.
class Client {
 public:
  // `address`: host:port, [ipv6]:port or unix:path. Asks the server for its health once, so that a
  // wrong address fails here: UNAVAILABLE or DEADLINE_EXCEEDED. A server that is not ready yet, or
  // that has no health service, is good enough.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& address,
                                                         ClientOptions options = {});
  ~Client();

  // Outputs of `op`; gradients of its inputs; both. The tensors are sent from the caller's memory
  // without a copy; they are not referred to any more when the call returns, however it ends.
  //   INVALID_ARGUMENT   breaks the contract, with the same sentence from here or from the server
  //   NOT_FOUND          no such operator
  //   UNIMPLEMENTED      legal, but this server cannot run it
  //   UNAVAILABLE, RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED as everywhere
  absl::StatusOr<CallReply> Forward(absl::string_view op, absl::Span<const InputTensor> inputs,
                                    const CallSettings& settings = {});
  absl::StatusOr<CallReply> Backward(absl::string_view op, absl::Span<const InputTensor> inputs,
                                     const CallSettings& settings = {});
  absl::StatusOr<CallReply> ForwardBackward(absl::string_view op,
                                            absl::Span<const InputTensor> inputs,
                                            const CallSettings& settings = {});
  absl::StatusOr<CallReply> Call(absl::string_view op, Direction direction,
                                 absl::Span<const InputTensor> inputs,
                                 const CallSettings& settings = {});

  // The contract as the server has it, of one operator or (empty name) of all. These two speak
  // scanserve.v1 whatever the protocol; include proto/scanserve/v1/kernel_service.pb.h.
  absl::StatusOr<v1::DescribeResponse> Describe(absl::string_view op = "");
  absl::StatusOr<v1::ServerInfoResponse> ServerInfo();

  // grpc.health.v1: whether `service` (empty: the server as a whole) is SERVING.
  absl::StatusOr<bool> IsServing(absl::string_view service = "");

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace scanserve
