#include "server/metrics/http_server.h"

#include <chrono>
#include <future>
#include <utility>
#include <vector>

#include "CivetServer.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "spdlog/spdlog.h"

namespace scanserve {
namespace {

struct Reply {
  int code = 200;
  const char* reason = "OK";
  const char* content_type = "text/plain; charset=utf-8";
  const char* extra_header = "";
  std::string body;
};

Reply Answer(const HttpPages& pages, absl::string_view method, absl::string_view path) {
  const bool is_metrics = path == "/metrics";
  if (!is_metrics && path != "/") {
    return {.code = 404, .reason = "Not Found", .body = "not found, see /metrics\n"};
  }
  if (method != "GET") {
    return {.code = 405,
            .reason = "Method Not Allowed",
            .extra_header = "Allow: GET\r\n",
            .body = "only GET is answered here\n"};
  }
  if (is_metrics) {
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = pages.metrics()};
  }
  return {.content_type = "text/html; charset=utf-8", .body = pages.home()};
}

// CivetWeb calls this for every request, whatever its method and path, before anything of its own.
int HandleRequest(mg_connection* connection) {
  const mg_request_info* info = mg_get_request_info(connection);
  const auto* server = static_cast<const CivetServer*>(info->user_data);
  const auto& pages = *static_cast<const HttpPages*>(server->getUserContext());
  const Reply reply = Answer(pages, info->request_method, info->local_uri);
  mg_printf(connection,
            "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            reply.code, reply.reason, reply.content_type, reply.body.size(), reply.extra_header);
  mg_write(connection, reply.body.data(), reply.body.size());
  return reply.code;
}

// "host:port" without the port and the brackets of IPv6.
std::string HostOf(absl::string_view address) {
  address = address.substr(0, address.rfind(':'));
  if (absl::ConsumePrefix(&address, "[")) absl::ConsumeSuffix(&address, "]");
  return std::string(address);
}

int LogMessage(const mg_connection*, const char* message) {
  spdlog::info("http: {}", message);
  return 1;
}

}  // namespace

HttpServer::HttpServer(std::string host, HttpPages pages)
    : host_(std::move(host)), pages_(std::move(pages)) {}

HttpServer::~HttpServer() {
  if (civet_ != nullptr) Close();
}

// CivetWeb looks at its stop flag every two seconds, or when somebody connects: we do.
void HttpServer::Close() {
  const std::future<void> closed = std::async(std::launch::async, [this] { civet_->close(); });
  while (closed.wait_for(std::chrono::milliseconds(1)) == std::future_status::timeout) {
    char error[128];
    mg_connection* knock = mg_connect_client(host_.c_str(), port_, 0, error, sizeof(error));
    if (knock != nullptr) mg_close_connection(knock);
  }
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address,
                                                              HttpPages pages) {
  auto server = absl::WrapUnique(new HttpServer(HostOf(address), std::move(pages)));
  // An idle connection holds a thread until the time limit: enough of both that a few of them do
  // not keep a scraper out.
  const std::vector<std::string> options = {"listening_ports",    address, "num_threads", "16",
                                            "request_timeout_ms", "2000"};
  CivetCallbacks callbacks;
  callbacks.begin_request = HandleRequest;
  callbacks.log_message = LogMessage;
  try {
    server->civet_ = std::make_unique<CivetServer>(options, &callbacks, &server->pages_);
  } catch (const CivetException&) {
    // The reason has gone to the log.
    return absl::UnavailableError(absl::StrCat("cannot listen on ", address, " for metrics"));
  }
  server->port_ = server->civet_->getListeningPorts().front();
  return server;
}

}  // namespace scanserve
