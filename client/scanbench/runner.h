// Where the calls of a benchmark run: in this process, or on a server.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cpp/client.h"
#include "kernels/runtime/device.h"
#include "kernels/spec/bind.h"

namespace scanserve::scanbench {

// Bytes of one call.
struct Footprint {
  int64_t temp = 0;       // workspace
  int64_t arguments = 0;  // inputs
  int64_t outputs = 0;
  int64_t peak = 0;  // device memory that the call holds at its peak
};

// A call that can be repeated. Refers to the memory of its inputs.
class PreparedCall {
 public:
  virtual ~PreparedCall() = default;
  virtual absl::Status Run() = 0;
  // Of the last run.
  virtual absl::Span<const NamedTensor> outputs() const = 0;
  virtual Footprint footprint() const = 0;
};

class Runner {
 public:
  virtual ~Runner() = default;
  // What computes, e.g. "CPU, 2 threads, AVX3".
  virtual std::string device() const = 0;
  // "embedded", "kernel" or "oip".
  virtual std::string transport() const = 0;
  virtual absl::StatusOr<std::unique_ptr<PreparedCall>> Prepare(
      const Model& model, absl::Span<const InputTensor> inputs,
      const std::vector<std::string>& outputs, const std::string& implementation) = 0;
};

std::unique_ptr<Runner> MakeEmbeddedRunner(Device& device);
absl::StatusOr<std::unique_ptr<Runner>> MakeServerRunner(const std::string& address,
                                                         Protocol protocol);

}  // namespace scanserve::scanbench
