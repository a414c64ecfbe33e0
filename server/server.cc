#include "server/server.h"

#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/version.h"
#include "kernels/runtime/cpu_device.h"
#include "spdlog/spdlog.h"

namespace scanserve {
namespace {

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// "host:port", with brackets round an IPv6 address.
std::string HostPort(const std::string& host, int64_t port) {
  const bool is_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  return is_ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const ServerOptions& options) {
  if (options.device == "cuda") {
    return absl::FailedPreconditionError(
        "--device=cuda: this build has no CUDA device; use --device=cpu or auto");
  }
  if (options.device == "auto") spdlog::info("no GPU in this build: --device=auto uses the CPU");
  CpuDeviceOptions cpu;
  cpu.num_threads = static_cast<int>(options.threads);
  cpu.memory_budget_bytes = static_cast<size_t>(options.memory_budget_bytes);
  return std::make_unique<CpuDevice>(cpu);
}

ServerCoreOptions CoreOptionsOf(const ServerOptions& options) {
  ServerCoreOptions core;
  core.limits.queue_requests = static_cast<size_t>(options.max_queue_requests);
  core.limits.queue_bytes = static_cast<size_t>(options.max_queue_bytes);
  core.limits.memory_bytes = static_cast<size_t>(options.memory_budget_bytes);
  return core;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Create(const ServerOptions& options) {
  auto server = absl::WrapUnique(new Server(options));
  SCANSERVE_RETURN_IF_ERROR(server->Start());
  return server;
}

Server::~Server() {
  if (rpc_ != nullptr) DrainWithin({}, {});
}

absl::Status Server::Start() {
  // One that an earlier run left would be taken for ours.
  if (!options_.port_file.empty()) std::remove(options_.port_file.c_str());
  SCANSERVE_ASSIGN_OR_RETURN(device_, MakeDevice(options_));
  SCANSERVE_ASSIGN_OR_RETURN(core_, ServerCore::Create(*device_, CoreOptionsOf(options_)));
  if (options_.allow_metrics) SCANSERVE_RETURN_IF_ERROR(StartHttp());
  RpcOptions rpc;
  rpc.address = HostPort(options_.grpc_address, options_.grpc_port);
  rpc.max_message_bytes = options_.max_message_bytes;
  SCANSERVE_ASSIGN_OR_RETURN(rpc_, RpcServer::Start(*core_, std::move(rpc)));
  spdlog::info("scanserved {} ({}) on {}: gRPC on {}, metrics on {}", kVersion, kCommit,
               device_->caps().description, HostPort(options_.grpc_address, grpc_port()),
               http_ == nullptr ? "no port" : HostPort(options_.metrics_address, metrics_port()));
  return WritePortFile();
}

absl::Status Server::StartHttp() {
  HttpPages pages;
  pages.metrics = [this] { return core_->metrics().Serialize(); };
  pages.home = [this] { return HomePage(); };
  SCANSERVE_ASSIGN_OR_RETURN(
      http_, HttpServer::Start(HostPort(options_.metrics_address, options_.metrics_port),
                               std::move(pages)));
  return absl::OkStatus();
}

// Written aside and renamed, so that a reader never sees half of it.
absl::Status Server::WritePortFile() const {
  if (options_.port_file.empty()) return absl::OkStatus();
  const std::string draft = options_.port_file + ".tmp";
  std::ofstream file(draft, std::ios::trunc);
  file << "grpc=" << grpc_port() << "\nmetrics=" << metrics_port() << "\n";
  file.close();
  if (!file || std::rename(draft.c_str(), options_.port_file.c_str()) != 0) {
    return absl::InternalError(absl::StrCat("--port-file: cannot write ", options_.port_file));
  }
  return absl::OkStatus();
}

void Server::Drain() {
  spdlog::info("draining");
  DrainWithin(Milliseconds(options_.drain_delay), std::chrono::seconds(options_.exit_timeout_secs));
  spdlog::info("drained");
}

void Server::DrainWithin(std::chrono::milliseconds delay, std::chrono::milliseconds grace) {
  core_->BeginDrain();
  rpc_->SetServing(false);
  // Load balancers need this long to learn of it.
  if (delay.count() > 0) std::this_thread::sleep_for(delay);
  core_->StopAdmitting();
  rpc_->Shutdown(grace);
  core_->Stop();
}

std::string Server::HomePage() const {
  std::string page = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>scanserved</title>"
      "</head><body>\n<h1>scanserved ",
      kVersion, "</h1>\n<p>commit ", kCommit, "</p>\n<p>device: ", device_->caps().description,
      "</p>\n<p>", core_->IsReady() ? "ready" : "not ready",
      "</p>\n<p><a href=\"/metrics\">metrics</a></p>\n<ul>\n");
  for (const std::unique_ptr<const Model>& model : core_->catalog().models()) {
    absl::StrAppend(&page, "<li>", model->name, "</li>\n");
  }
  absl::StrAppend(&page, "</ul>\n</body></html>\n");
  return page;
}

}  // namespace scanserve
