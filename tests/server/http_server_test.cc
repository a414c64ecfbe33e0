#include "server/metrics/http_server.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/http_client.h"

namespace scanserve {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest() {
    HttpPages pages;
    pages.metrics = [] { return std::string("scanserve_ready 1\n"); };
    pages.home = [] { return std::string("<p>hello</p>"); };
    server_ = *HttpServer::Start("127.0.0.1:0", std::move(pages));
  }

  std::string Send(const std::string& method, const std::string& path) {
    return Exchange(server_->port(),
                    absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, ServesMetricsAsPrometheusText) {
  const std::string reply = Send("GET", "/metrics");
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(reply, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(reply, HasSubstr("Content-Length: 18\r\n"));
  EXPECT_THAT(reply, HasSubstr("\r\n\r\nscanserve_ready 1\n"));
}

TEST_F(HttpServerTest, IgnoresAQuery) {
  EXPECT_THAT(Send("GET", "/metrics?name[]=x"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(HttpServerTest, ServesAPageForPeople) {
  const std::string reply = Send("GET", "/");
  EXPECT_THAT(reply, HasSubstr("Content-Type: text/html"));
  EXPECT_THAT(reply, HasSubstr("<p>hello</p>"));
}

TEST_F(HttpServerTest, HasNoOtherPaths) {
  for (const char* path : {"/metric", "/metrics/", "/metrics/x", "/etc/passwd", "/../etc/passwd",
                           "/%2e%2e/etc/passwd"}) {
    EXPECT_THAT(Send("GET", path), ::testing::ContainsRegex("^HTTP/1.1 40[04] ")) << path;
  }
}

TEST_F(HttpServerTest, HasNoOtherMethods) {
  for (const char* method : {"POST", "PUT", "DELETE", "HEAD", "OPTIONS"}) {
    const std::string reply = Send(method, "/metrics");
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 405 Method Not Allowed\r\n")) << method;
    EXPECT_THAT(reply, HasSubstr("Allow: GET\r\n")) << method;
  }
}

TEST_F(HttpServerTest, SurvivesWhatIsNotHttp) {
  Exchange(server_->port(), "\x16\x03\x01 not http\r\n\r\n");
  EXPECT_THAT(Send("GET", "/metrics"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(HttpServerTest, SaysThatAPortIsTaken) {
  const std::string address = absl::StrCat("127.0.0.1:", server_->port());
  const auto second = HttpServer::Start(address, {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(address));
}

}  // namespace
}  // namespace scanserve
