// inference.GRPCInferenceService over a Core.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "server/core.h"
#include "server/rpc/call_gate.h"

namespace scanserve {

// `core` and `gate` must outlive the service.
std::unique_ptr<grpc::Service> MakeOipService(Core& core, CallGate& gate);

}  // namespace scanserve
