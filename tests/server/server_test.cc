#include "server/server.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/http_client.h"
#include "tests/server/server_fixture.h"

namespace scanserve {
namespace {

using ::testing::HasSubstr;

ServerOptions AnyPorts() {
  ServerOptions options;
  options.grpc_port = 0;
  options.metrics_port = 0;
  options.threads = 1;
  options.memory_budget_bytes = 1 << 20;
  return options;
}

class ServerTest : public ::testing::Test {
 protected:
  ScopedLog log_;
};

TEST_F(ServerTest, ListensOnFreePortsAndWritesThemToAFile) {
  ServerOptions options = AnyPorts();
  options.port_file = absl::StrCat(::testing::TempDir(), "/server_test_ports");
  std::ofstream(options.port_file) << "left by an earlier run\n";
  const auto server = *Server::Create(options);
  EXPECT_GT(server->grpc_port(), 0);
  EXPECT_GT(server->metrics_port(), 0);
  EXPECT_NE(server->grpc_port(), server->metrics_port());
  std::stringstream text;
  text << std::ifstream(options.port_file).rdbuf();
  EXPECT_EQ(text.str(),
            absl::StrCat("grpc=", server->grpc_port(), "\nmetrics=", server->metrics_port(), "\n"));
  std::filesystem::remove(options.port_file);
}

TEST_F(ServerTest, ShowsItsStateOverHttpBeforeAndDuringTheDrain) {
  const auto server = *Server::Create(AnyPorts());
  const int port = server->metrics_port();
  EXPECT_THAT(HttpGet(port, "/metrics"), HasSubstr("\nscanserve_ready 1\n"));
  EXPECT_THAT(HttpGet(port, "/metrics"),
              HasSubstr("scanserve_pool_budget_bytes{device=\"cpu\"} 1048576\n"));
  const std::string page = HttpGet(port, "/");
  EXPECT_THAT(page, HasSubstr("<p>ready</p>"));
  EXPECT_THAT(page, HasSubstr("href=\"/metrics\""));
  EXPECT_THAT(page, HasSubstr("CPU, 1 thread<"));
  EXPECT_THAT(page, HasSubstr("selective_scan_fwd_bwd"));
  server->Drain();
  EXPECT_THAT(HttpGet(port, "/metrics"), HasSubstr("\nscanserve_ready 0\n"));
  EXPECT_THAT(HttpGet(port, "/metrics"), HasSubstr("\nscanserve_draining 1\n"));
  EXPECT_THAT(HttpGet(port, "/"), HasSubstr("<p>not ready</p>"));
}

TEST_F(ServerTest, OpensNoHttpPortWithoutMetrics) {
  ServerOptions options = AnyPorts();
  options.allow_metrics = false;
  EXPECT_EQ((*Server::Create(options))->metrics_port(), 0);
}

TEST_F(ServerTest, SaysWhichAddressItCannotListenOn) {
  const auto first = *Server::Create(AnyPorts());
  ServerOptions options = AnyPorts();
  options.grpc_port = first->grpc_port();
  const auto second = Server::Create(options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("127.0.0.1:", first->grpc_port())));
}

TEST_F(ServerTest, InsistsOnTheDeviceThatWasAskedFor) {
  ServerOptions options = AnyPorts();
  options.device = "cuda";
  EXPECT_EQ(Server::Create(options).status().code(), absl::StatusCode::kFailedPrecondition);
  options.device = "auto";
  EXPECT_TRUE(Server::Create(options).ok());
  EXPECT_THAT(log_.text(), HasSubstr("--device=auto uses the CPU"));
}

TEST_F(ServerTest, FailsWhenItCannotWriteThePortFile) {
  ServerOptions options = AnyPorts();
  options.port_file = absl::StrCat(::testing::TempDir(), "/no/such/folder/ports");
  const auto server = Server::Create(options);
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(std::string(server.status().message()), HasSubstr(options.port_file));
}

}  // namespace
}  // namespace scanserve
