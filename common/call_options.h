// The options of one call and how it went, whatever protocol carries them. Server and client share
// these types.
#pragma once

#include <cstdint>
#include <string>

namespace scanserve {

// Docs of each option: proto/scanserve/v1/kernel_service.proto.
struct CallOptions {
  std::string implementation = "auto";
  std::string precision = "ieee";  // "ieee", "tf32x3", "tf32", "bf16"
  bool deterministic = true;
  int64_t chunk_size = 0;  // 0: the plan's choice
  bool timing = false;
  bool check_finite = false;
  uint64_t priority = 0;         // 0: the default level, 1: the most urgent
  int64_t queue_timeout_us = 0;  // 0: none
};

// Filled as far as the call came. Over the wire the figures travel only when `timing` was asked
// for.
struct CallReport {
  std::string implementation;
  std::string precision;
  bool deterministic = true;
  uint64_t queue_ns = 0;
  uint64_t h2d_ns = 0;
  uint64_t compute_ns = 0;
  uint64_t d2h_ns = 0;
  uint64_t workspace_bytes = 0;
  uint64_t peak_bytes = 0;     // pool memory held by this call at its peak
  uint64_t cold_start_ns = 0;  // making the plan
};

}  // namespace scanserve
