// A server over a core whose answers the test decides, and a client of it.
#pragma once

#include <gmock/gmock.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "kernels/runtime/cpu_device.h"
#include "server/core.h"
#include "server/rpc/rpc_server.h"

namespace scanserve {

// What stands behind a CallHandle is the core's own affair: this is the fake core's.
class Request {
 public:
  std::function<void()> on_cancel;
};

class FakeCore final : public Core {
 public:
  using Handler = std::function<void(Call, CallDone)>;

  struct Rejection {
    const Model* model;
    std::string method;
    absl::Status status;
  };

  FakeCore() : device_({.num_threads = 1}) {}

  const Catalog& catalog() const override { return Catalog::Default(); }
  const Device& device() const override { return device_; }
  bool IsReady() const override { return ready; }
  CallHandle Submit(Call call, CallDone done) override {
    handler(std::move(call), std::move(done));
    auto request = std::make_shared<Request>();
    request->on_cancel = on_cancel;
    return CallHandle(std::move(request));
  }
  ModelStats StatsOf(const Model&) const override { return stats; }
  void CountRejected(const Model* model, absl::string_view method,
                     const absl::Status& status) override {
    const MutexLock lock(mutex_);
    rejections_.push_back({model, std::string(method), status});
  }
  void CountResponse(const Model&, size_t bytes) override { response_bytes += bytes; }

  std::vector<Rejection> rejections() const {
    const MutexLock lock(mutex_);
    return rejections_;
  }

  // An output with these bytes, in device memory.
  CallOutput Output(const std::string& name, TensorMeta meta, const std::string& bytes) {
    Buffer buffer = device_.pool().Allocate(bytes.size()).value();
    std::copy(bytes.begin(), bytes.end(), static_cast<char*>(buffer.data()));
    return {name, std::move(meta), std::move(buffer)};
  }

  // What a test sets before its calls.
  std::atomic<bool> ready{true};
  Handler handler = [](Call, CallDone done) { done(absl::InternalError("no handler"), {}); };
  std::function<void()> on_cancel = [] {};
  ModelStats stats;
  std::atomic<size_t> response_bytes{0};

 private:
  CpuDevice device_;
  mutable Mutex mutex_;
  std::vector<Rejection> rejections_ ABSL_GUARDED_BY(mutex_);
};

inline std::string BytesOf(const Payload& payload) {
  std::string bytes(payload.size, '\0');
  payload.CopyTo(bytes.data());
  return bytes;
}

class RpcTest : public ::testing::Test {
 protected:
  void Serve(RpcOptions options = {}) {
    options.address = "127.0.0.1:0";
    absl::StatusOr<std::unique_ptr<RpcServer>> server = RpcServer::Start(core_, options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(Address(), grpc::InsecureChannelCredentials());
  }

  std::string Address() const { return "127.0.0.1:" + std::to_string(server_->port()); }

  // The core answers every call with output "y": the bytes of input "u".
  void EchoInputAsOutput() {
    core_.handler = [this](Call call, CallDone done) {
      CallResult result;
      for (const CallInput& input : call.inputs) {
        if (input.name == "u") {
          result.outputs.push_back(core_.Output("y", input.meta, BytesOf(input.payload)));
        }
      }
      result.report = {.implementation = "fused", .precision = "ieee", .compute_ns = 77};
      done(absl::OkStatus(), std::move(result));
    };
  }

  void FailEveryCall(absl::Status status) {
    core_.handler = [status](Call, CallDone done) { done(status, {}); };
  }

  void SetUp() override { Serve(); }

  FakeCore core_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

// "CODE: message" holds.
inline void ExpectError(const grpc::Status& status, grpc::StatusCode code,
                        const std::string& text) {
  EXPECT_EQ(status.error_code(), code) << status.error_message();
  EXPECT_THAT(status.error_message(), ::testing::HasSubstr(text));
}

}  // namespace scanserve
