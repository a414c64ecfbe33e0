// scanserve.v1.KernelService over a Core.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <cstdint>
#include <memory>

#include "server/core.h"
#include "server/rpc/call_gate.h"

namespace scanserve {

// `core` and `gate` must outlive the service. `max_message_bytes` is shown by ServerInfo.
std::unique_ptr<grpc::Service> MakeKernelService(Core& core, CallGate& gate,
                                                 int64_t max_message_bytes);

}  // namespace scanserve
