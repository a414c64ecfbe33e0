// The network face of a Core: both protocols, health and reflection on one port.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/core.h"

namespace scanserve {

struct RpcOptions {
  std::string address = "127.0.0.1:8001";  // host:port, [ipv6]:port or unix:path; port 0: any
  int64_t max_message_bytes = int64_t{512} << 20;  // of one request; at most 2 GiB - 1
  int max_concurrent_streams = 256;                // per connection
};

// Thread-safe.
class RpcServer {
 public:
  // Listens and serves until Shutdown. `core` must outlive the server. Health starts as
  // Core::IsReady says. UNAVAILABLE: cannot listen on the address.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(Core& core, const RpcOptions& options);
  // Shuts down without grace.
  virtual ~RpcServer() = default;

  // The port that it listens on (1 for a unix socket).
  virtual int port() const = 0;

  // Readiness as grpc.health.v1 shows it, for "" and for each protocol's service by its name;
  // watchers are told at once. "liveness" stays SERVING until Shutdown.
  virtual void SetServing(bool serving) = 0;

  // Refuses new calls with UNAVAILABLE, waits up to `grace` for those in progress, cancels the rest
  // and the watchers of health, closes the port and returns when all have ended. May be called more
  // than once.
  virtual void Shutdown(std::chrono::milliseconds grace) = 0;
};

}  // namespace scanserve
