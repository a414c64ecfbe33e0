// The options of scanserved.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace scanserve {

// Defaults are here; flag, environment name, range and help of each field are in OptionTable().
struct ServerOptions {
  std::string grpc_address = "127.0.0.1";
  int64_t grpc_port = 8001;  // 0: any
  std::string metrics_address = "127.0.0.1";
  int64_t metrics_port = 8002;  // 0: any
  bool allow_metrics = true;
  std::string port_file;                           // empty: none
  std::string device = "auto";                     // auto, cpu or cuda
  int64_t threads = 0;                             // 0: one per core
  int64_t memory_budget_bytes = int64_t{4} << 30;  // of the device's pool
  int64_t max_queue_requests = 256;                // calls waiting for the device
  int64_t max_queue_bytes = int64_t{2} << 30;      // tensor bytes of those
  int64_t max_message_bytes = int64_t{512} << 20;  // of one request message
  double drain_delay = 0;                          // seconds
  int64_t exit_timeout_secs = 30;                  // seconds
  int64_t log_verbose = 0;                         // 0: notable events, 1: every call
  std::string log_format = "default";              // default or ISO8601
};

// One row per field.
struct OptionRow {
  using Field = std::variant<bool ServerOptions::*, int64_t ServerOptions::*,
                             double ServerOptions::*, std::string ServerOptions::*>;
  std::string flag;  // "--grpc-port"
  Field field;
  std::string help;
  double min = 0;  // of numbers
  double max = 0;
  std::vector<std::string> allowed = {};  // of strings; empty: any

  // "SCANSERVE_GRPC_PORT".
  std::string EnvironmentName() const;
};

absl::Span<const OptionRow> OptionTable();

// What a command line asks for.
struct CommandLine {
  ServerOptions options;
  std::string text;  // of --help or --version: print it and do nothing else
};

// Looks up an environment variable.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// A flag beats the environment, the environment beats the default; an empty variable counts as
// absent. INVALID_ARGUMENT names the flag
// or variable, its value and what was expected. `arguments` are those behind the program's name.
absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments,
                                             const Environment& environment);

}  // namespace scanserve
