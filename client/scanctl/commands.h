// The commands of scanctl. Each prints to `out` and returns the exit code, or a Status that main
// prints (exit code 1).
#pragma once

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"

namespace scanserve::scanctl {

inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;  // server error, or an error beyond its tolerance
inline constexpr int kUsage = 2;

struct ServerFlags {
  std::string address = "127.0.0.1:8001";
  std::string protocol = "kernel";  // or "oip"

  absl::StatusOr<std::unique_ptr<Client>> Connect() const;
};

absl::StatusOr<int> List(const ServerFlags& server, std::ostream& out);
absl::StatusOr<int> DescribeOp(const ServerFlags& server, const std::string& op, std::ostream& out);
absl::StatusOr<int> Health(const ServerFlags& server, const std::string& service,
                           std::ostream& out);

struct RunFlags {
  std::string model;                    // "selective_scan_fwd"
  std::string inputs;                   // .safetensors with the tensors of the call
  std::string outputs;                  // .safetensors to write; empty: none
  std::vector<std::string> attributes;  // name=value
  std::string implementation = "auto";
  bool timing = false;
  int timeout_ms = 0;
};
absl::StatusOr<int> Run(const ServerFlags& server, const RunFlags& flags, std::ostream& out);

struct VerifyFlags {
  std::vector<std::string> files;
  std::string dtype = "FP32";
  std::string implementation;  // empty: reference for FP64, auto otherwise
  std::string tolerances;      // empty: tolerances.json beside each file
  bool json = false;
};
absl::StatusOr<int> Verify(const ServerFlags& server, const VerifyFlags& flags, std::ostream& out);

// Writes DIR/data.json for perf_analyzer and prints the command line that uses it.
absl::StatusOr<int> ExportPerfData(const ServerFlags& server, const std::string& op_case,
                                   const std::string& folder, std::ostream& out);

}  // namespace scanserve::scanctl
