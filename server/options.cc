#include "server/options.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/status_macros.h"
#include "common/version.h"

namespace scanserve {
namespace {

constexpr double kMaxPort = 65535;
// Integers up to here are exact as doubles.
constexpr double kMaxBytes = 9007199254740992;  // 2^53
constexpr double kMaxMessage = 2147483647;      // gRPC's limit

std::vector<OptionRow> MakeTable() {
  using O = ServerOptions;
  return {
      {"--grpc-address", &O::grpc_address, "address of the gRPC port"},
      {"--grpc-port", &O::grpc_port, "gRPC port, 0 takes any", 0, kMaxPort},
      {"--metrics-address", &O::metrics_address, "address of the HTTP port"},
      {"--metrics-port", &O::metrics_port, "HTTP port of /metrics, 0 takes any", 0, kMaxPort},
      {"--allow-metrics", &O::allow_metrics, "open the HTTP port"},
      {"--port-file", &O::port_file,
       "write the ports in use to this file once ready, as lines grpc=PORT and metrics=PORT"},
      {"--device", &O::device, "device to compute on", 0, 0, {"auto", "cpu", "cuda"}},
      {"--threads", &O::threads, "threads of the CPU device, 0: one per core", 0, 4096},
      {"--memory-budget-bytes", &O::memory_budget_bytes, "device memory to use at most", 1,
       kMaxBytes},
      {"--max-queue-requests", &O::max_queue_requests, "calls that may wait for the device", 1,
       1e9},
      {"--max-queue-bytes", &O::max_queue_bytes, "tensor bytes that may wait for the device", 1,
       kMaxBytes},
      {"--max-message-bytes", &O::max_message_bytes, "size of one request message at most", 1,
       kMaxMessage},
      {"--drain-delay", &O::drain_delay,
       "seconds to serve on after SIGTERM while health says NOT_SERVING", 0, 86400},
      {"--exit-timeout-secs", &O::exit_timeout_secs,
       "seconds that calls in progress get to finish at exit", 0, 86400},
      {"--log-verbose", &O::log_verbose, "0: notable events, 1: every call", 0, 1},
      {"--log-format", &O::log_format, "time stamps of log lines", 0, 0, {"default", "ISO8601"}},
  };
}

bool Parse(absl::string_view text, bool& value) { return absl::SimpleAtob(text, &value); }
bool Parse(absl::string_view text, int64_t& value) { return absl::SimpleAtoi(text, &value); }
bool Parse(absl::string_view text, double& value) { return absl::SimpleAtod(text, &value); }
bool Parse(absl::string_view text, std::string& value) {
  value = std::string(text);
  return true;
}

template <typename T>
bool IsAllowed(const OptionRow& row, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return row.allowed.empty() ||
           std::find(row.allowed.begin(), row.allowed.end(), value) != row.allowed.end();
  } else if constexpr (std::is_same_v<T, bool>) {
    return true;
  } else {
    const auto number = static_cast<double>(value);
    return number >= row.min && number <= row.max;
  }
}

// "true or false", "a number from 0 to 65535", "one of auto, cpu, cuda".
template <typename T>
std::string Expectation(const OptionRow& row) {
  if constexpr (std::is_same_v<T, std::string>) {
    return row.allowed.empty() ? "text" : absl::StrCat("one of ", absl::StrJoin(row.allowed, ", "));
  } else if constexpr (std::is_same_v<T, bool>) {
    return "true or false";
  } else {
    return absl::StrCat(std::is_same_v<T, int64_t> ? "an integer" : "a number", " from ",
                        static_cast<int64_t>(row.min), " to ", static_cast<int64_t>(row.max));
  }
}

// Sets the row's field; `source` is the flag or variable that the text comes from.
absl::Status Set(const OptionRow& row, absl::string_view source, absl::string_view text,
                 ServerOptions& options) {
  return std::visit(
      [&](auto member) -> absl::Status {
        using T = std::remove_reference_t<decltype(options.*member)>;
        T value{};
        if (!Parse(text, value) || !IsAllowed(row, value)) {
          return absl::InvalidArgumentError(
              absl::StrCat(source, ": '", text, "' given, expected ", Expectation<T>(row)));
        }
        options.*member = std::move(value);
        return absl::OkStatus();
      },
      row.field);
}

std::string DefaultText(const OptionRow& row) {
  const ServerOptions defaults;
  return std::visit(
      [&](auto member) -> std::string {
        const auto& value = defaults.*member;
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, bool>) {
          return value ? "true" : "false";
        } else if constexpr (std::is_same_v<T, std::string>) {
          return value.empty() ? "none" : value;
        } else {
          return absl::StrCat(value);
        }
      },
      row.field);
}

std::string HelpText(const OptionRow& row) {
  const std::string expectation = std::visit(
      [&](auto member) {
        return Expectation<std::decay_t<decltype(std::declval<ServerOptions>().*member)>>(row);
      },
      row.field);
  return absl::StrCat(row.help, "; ", expectation, " [", DefaultText(row), "] ($",
                      row.EnvironmentName(), ")");
}

bool IsBool(const OptionRow& row) {
  return std::holds_alternative<bool ServerOptions::*>(row.field);
}

// The values of the flags that are on the command line, or the text of --help or --version.
struct Flags {
  std::vector<std::optional<std::string>> values;  // by row of the table
  std::string text;
};

absl::StatusOr<Flags> ReadFlags(const std::vector<std::string>& arguments) {
  CLI::App app("Serves sequence operators over gRPC.", "scanserved");
  const absl::Span<const OptionRow> table = OptionTable();
  std::vector<std::string> texts(table.size());
  std::vector<CLI::Option*> given;
  for (size_t i = 0; i < table.size(); ++i) {
    CLI::Option* option = app.add_option(table[i].flag, texts[i], HelpText(table[i]));
    option->type_name("VALUE");
    if (IsBool(table[i])) option->expected(0, 1);
    given.push_back(option->take_last());
  }
  bool version = false;
  app.add_flag("--version", version, "print the version");
  Flags flags;
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    flags.text = app.help();
    return flags;
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  if (version) {
    flags.text = absl::StrCat("scanserved ", kVersion, " (", kCommit, ")\n");
    return flags;
  }
  for (size_t i = 0; i < table.size(); ++i) {
    flags.values.emplace_back();
    if (given[i]->count() == 0) continue;
    // A bare boolean flag means true.
    flags.values.back() = IsBool(table[i]) && texts[i].empty() ? "true" : texts[i];
  }
  return flags;
}

}  // namespace

absl::Span<const OptionRow> OptionTable() {
  static const auto* const table = new std::vector<OptionRow>(MakeTable());
  return *table;
}

std::string OptionRow::EnvironmentName() const {
  const absl::string_view name = absl::string_view(flag).substr(2);
  return absl::StrCat("SCANSERVE_", absl::AsciiStrToUpper(absl::StrReplaceAll(name, {{"-", "_"}})));
}

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments,
                                             const Environment& environment) {
  SCANSERVE_ASSIGN_OR_RETURN(const Flags flags, ReadFlags(arguments));
  CommandLine line;
  line.text = flags.text;
  if (!line.text.empty()) return line;
  const absl::Span<const OptionRow> table = OptionTable();
  for (size_t i = 0; i < table.size(); ++i) {
    const OptionRow& row = table[i];
    if (flags.values[i]) {
      SCANSERVE_RETURN_IF_ERROR(Set(row, row.flag, *flags.values[i], line.options));
    } else if (const auto value = environment(row.EnvironmentName()); value && !value->empty()) {
      SCANSERVE_RETURN_IF_ERROR(Set(row, row.EnvironmentName(), *value, line.options));
    }
  }
  return line;
}

}  // namespace scanserve
