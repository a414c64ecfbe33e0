// The plain HTTP port: /metrics for Prometheus and one page for people.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

class CivetServer;

namespace scanserve {

struct HttpPages {
  // The body of /metrics, in Prometheus's text format 0.0.4.
  std::function<std::string()> metrics;
  // The body of /, as HTML.
  std::function<std::string()> home;
};

// Answers GET on these two paths, 404 on others and 405 to other methods. Thread-safe.
class HttpServer {
 public:
  // Listens on "host:port"; port 0 takes any. The pages are called from several threads at once
  // until the server is destroyed. UNAVAILABLE: cannot listen there.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           HttpPages pages);
  // Stops; answers in progress are completed.
  ~HttpServer();

  int port() const { return port_; }

 private:
  HttpServer(std::string host, HttpPages pages);
  void Close();

  const std::string host_;
  const HttpPages pages_;
  std::unique_ptr<CivetServer> civet_;
  int port_ = 0;
};

}  // namespace scanserve
