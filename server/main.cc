// scanserved: the server's process. What it serves is in server.h.
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/keep_memory.h"
#include "server/logging.h"
#include "server/options.h"
#include "server/server.h"

namespace scanserve {
namespace {

enum ExitCode {
  kExitOk = 0,
  kExitFailure = 1,
  kExitUsage = 2,
  kExitConfig = 3,
  kExitBind = 4,
  kExitNoDevice = 5,
};

// Every thread inherits the mask, so that only the main thread takes these signals.
sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

// gRPC 1.51 stops accepting for good once it has run out of descriptors: have as many as allowed.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// From now on a signal ends the process at once, even as process 1 of a container, where the
// default action would be to ignore it.
void LetNextSignalKill(const sigset_t& signals) {
  for (const int number : {SIGTERM, SIGINT}) {
    std::signal(number, [](int n) { _exit(128 + n); });
  }
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

std::optional<std::string> GetEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

int Fail(const absl::Status& status, ExitCode code) {
  std::fprintf(stderr, "scanserved: %s\n", std::string(status.message()).c_str());
  return code;
}

ExitCode ExitCodeOf(const absl::Status& status) {
  if (absl::IsUnavailable(status)) return kExitBind;
  if (absl::IsFailedPrecondition(status)) return kExitNoDevice;
  if (absl::IsInvalidArgument(status)) return kExitConfig;
  return kExitFailure;
}

int Run(const std::vector<std::string>& arguments, const sigset_t& signals) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(arguments, GetEnvironment);
  if (!line.ok()) return Fail(line.status(), kExitUsage);
  if (!line->text.empty()) {
    std::fputs(line->text.c_str(), stdout);
    return kExitOk;
  }
  SetUpLogging(line->options);
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Create(line->options);
  if (!server.ok()) return Fail(server.status(), ExitCodeOf(server.status()));
  int signal = 0;
  sigwait(&signals, &signal);
  LetNextSignalKill(signals);
  (*server)->Drain();
  return kExitOk;
}

}  // namespace
}  // namespace scanserve

int main(int argc, char** argv) {
  const sigset_t signals = scanserve::BlockStopSignals();
  scanserve::KeepMemory();
  scanserve::RaiseDescriptorLimit();
  std::signal(SIGPIPE, SIG_IGN);
  return scanserve::Run(std::vector<std::string>(argv + 1, argv + argc), signals);
}
