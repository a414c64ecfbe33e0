// Devices, streams and events: what a plan runs on.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/payload.h"
#include "kernels/runtime/memory_pool.h"

namespace scanserve {

enum class DeviceKind { kCpu, kCuda };

// "cpu", "cuda".
absl::string_view NameOf(DeviceKind kind);

struct DeviceCaps {
  DeviceKind kind = DeviceKind::kCpu;
  std::string description;  // "CPU, 2 threads, AVX3"
  int num_threads = 1;
};

// A point in a stream.
class Event {
 public:
  virtual ~Event() = default;
  // True once everything enqueued before it has completed.
  virtual bool IsComplete() const = 0;
  // Blocks until then; the first error of the stream, if any.
  virtual absl::Status Wait() = 0;
};

// Work in order. One thread at a time may enqueue.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual absl::Status CopyToDevice(void* device, const void* host, size_t bytes) = 0;
  virtual absl::Status CopyToHost(void* host, const void* device, size_t bytes) = 0;
  // Puts the pieces one behind the other; they must live until the stream has passed.
  virtual absl::Status Gather(void* device, const Payload& payload) = 0;
  virtual absl::StatusOr<std::unique_ptr<Event>> Record() = 0;
  virtual absl::Status Synchronize() = 0;
};

// Thread-safe. Streams must not outlive their device.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceCaps& caps() const = 0;
  virtual MemoryPool& pool() const = 0;
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream() = 0;
};

}  // namespace scanserve
