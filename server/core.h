// The server without its protocols: what both rpc adapters share.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "kernels/runtime/device.h"
#include "kernels/spec/catalog.h"
#include "server/call.h"

namespace scanserve {

class Request;

// A call in progress, as its adapter holds it.
class CallHandle {
 public:
  explicit CallHandle(std::shared_ptr<Request> request) : request_(std::move(request)) {}
  // The client is gone or its deadline has passed. A queued call finishes at once (CANCELLED or
  // DEADLINE_EXCEEDED); a running one completes and its output is dropped. Thread-safe; may be
  // called after the end.
  void Cancel();

 private:
  std::shared_ptr<Request> request_;
};

// Counters of one model, as ModelStatistics reports them.
struct ModelStats {
  struct Duration {
    uint64_t count = 0;
    uint64_t ns = 0;
  };
  uint64_t last_inference_ms = 0;  // since the epoch
  uint64_t inference_count = 0;    // batch elements
  uint64_t execution_count = 0;
  Duration success, fail, queue, compute_input, compute_infer, compute_output;
  // By merged batch size (axis `batch` of the executed call).
  std::map<uint64_t, std::array<Duration, 3>> batches;  // compute input, infer, output
};

// Thread-safe.
class Core {
 public:
  virtual ~Core() = default;

  virtual const Catalog& catalog() const = 0;
  virtual const Device& device() const = 0;

  // True between start and drain.
  virtual bool IsReady() const = 0;

  // Validates, admits and queues the call. `done` may be called before Submit returns.
  // INVALID_ARGUMENT: breaks the contract. UNIMPLEMENTED: legal, but nothing here runs it.
  // UNAVAILABLE: queue full or draining. RESOURCE_EXHAUSTED: bytes or memory.
  virtual CallHandle Submit(Call call, CallDone done) = 0;

  virtual ModelStats StatsOf(const Model& model) const = 0;

  // An rpc that never became a call (unknown model, unreadable message): counted under the model
  // label "_unknown" when `model` is null.
  virtual void CountRejected(const Model* model, absl::string_view method,
                             const absl::Status& status) = 0;
  // Bytes of a reply on the wire, once it is serialised.
  virtual void CountResponse(const Model& model, size_t response_bytes) = 0;
};

}  // namespace scanserve
