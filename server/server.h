// A whole server: builds every part in order, stops them in reverse.
#pragma once

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/runtime/device.h"
#include "server/metrics/http_server.h"
#include "server/options.h"
#include "server/rpc/rpc_server.h"
#include "server/server_core.h"

namespace scanserve {

// Used by main, and by tests inside their process. Thread-safe.
class Server {
 public:
  // Serves when it returns. UNAVAILABLE: cannot listen on an address. FAILED_PRECONDITION: the
  // device that the options insist on is not there. INVALID_ARGUMENT: options that cannot work.
  static absl::StatusOr<std::unique_ptr<Server>> Create(const ServerOptions& options);
  // Drains without grace, unless Drain has done it.
  ~Server();

  int grpc_port() const { return rpc_->port(); }
  // 0 when metrics are off.
  int metrics_port() const { return http_ == nullptr ? 0 : http_->port(); }
  ServerCore& core() { return *core_; }

  // Says that it is not ready, serves on for options.drain_delay, then refuses new calls, lets
  // those in progress finish for up to options.exit_timeout_secs, cancels the rest. Returns when
  // no call is left. /metrics answers until the server is destroyed.
  void Drain();

 private:
  explicit Server(const ServerOptions& options) : options_(options) {}
  absl::Status Start();
  absl::Status StartHttp();
  absl::Status WritePortFile() const;
  void DrainWithin(std::chrono::milliseconds delay, std::chrono::milliseconds grace);
  std::string HomePage() const;

  const ServerOptions options_;
  // In the order of dependence: each uses those before it.
  std::unique_ptr<Device> device_;
  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<RpcServer> rpc_;
};

}  // namespace scanserve
