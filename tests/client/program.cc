#include "tests/client/program.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>

#include "absl/strings/str_cat.h"

namespace scanserve {

Finished RunProgram(const std::string& command) {
  Finished finished;
  const std::string line = absl::StrCat(SCANSERVE_BIN_DIR, "/", command, " 2>&1");
  FILE* pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return finished;
  char chunk[4096];
  for (size_t n = fread(chunk, 1, sizeof(chunk), pipe); n > 0;
       n = fread(chunk, 1, sizeof(chunk), pipe)) {
    finished.text.append(chunk, n);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) finished.code = WEXITSTATUS(status);
  return finished;
}

std::unique_ptr<Server> StartServer() {
  ServerOptions options;
  options.grpc_port = 0;
  options.metrics_port = 0;
  options.device = "cpu";
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Create(options);
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

std::string AddressOf(const Server& server) {
  return absl::StrCat("127.0.0.1:", server.grpc_port());
}

std::string MetricsAddressOf(const Server& server) {
  return absl::StrCat("127.0.0.1:", server.metrics_port());
}

}  // namespace scanserve
