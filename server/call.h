// What an rpc adapter hands to the core and gets back. The same for both protocols.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "common/call_options.h"
#include "common/clock.h"
#include "common/payload.h"
#include "kernels/runtime/buffer.h"
#include "kernels/spec/attributes.h"
#include "kernels/spec/model.h"
#include "kernels/spec/tensor.h"

namespace scanserve {

struct CallInput {
  std::string name;
  TensorMeta meta;
  Payload payload;  // exactly meta.ByteSize() bytes, checked by the core
};

struct Call {
  const Model* model = nullptr;
  std::string method;  // metric label: "ModelInfer", "Forward" ...
  std::vector<CallInput> inputs;
  Attributes attributes;
  std::vector<std::string> outputs;  // names asked for; empty: all
  CallOptions options;
  TimePoint received;                // when the message was complete
  TimePoint deadline = kNever;       // the client's
  size_t request_bytes = 0;          // on the wire
  std::shared_ptr<void> keep_alive;  // owns the memory behind the payloads
};

struct CallOutput {
  std::string name;
  TensorMeta meta;
  Buffer buffer;  // device memory that the host can read
};

struct CallResult {
  std::vector<CallOutput> outputs;
  // What admission holds for the outputs; goes when they go.
  std::shared_ptr<void> admitted;
  CallReport report;
};

// Called exactly once, from any thread, with no lock held. The result is empty unless the status
// is OK.
using CallDone = absl::AnyInvocable<void(absl::Status, CallResult)>;

}  // namespace scanserve
