// The CPU as a device.
#pragma once

#include <memory>

#include "absl/functional/function_ref.h"
#include "common/parallel_for.h"
#include "kernels/runtime/device.h"

namespace scanserve {

struct CpuDeviceOptions {
  int num_threads = 0;  // 0: one per core of this process
  size_t memory_budget_bytes = size_t{4} << 30;
};

// All streams share one arena of threads. Device memory is host memory.
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuDeviceOptions& options);

  const DeviceCaps& caps() const override { return caps_; }
  MemoryPool& pool() const override { return *pool_; }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override;

 private:
  DeviceCaps caps_;
  std::shared_ptr<MemoryPool> pool_;
  ThreadArena arena_;
};

// Runs each task to its end in the calling thread, with the device's arena for its parallel loops:
// in order without a second thread hop, so an event is complete as soon as it is recorded.
class CpuStream final : public Stream {
 public:
  explicit CpuStream(ThreadArena& arena) : arena_(arena) {}

  // `task` may use ParallelFor.
  absl::Status Launch(absl::FunctionRef<void()> task);

  absl::Status CopyToDevice(void* device, const void* host, size_t bytes) override;
  absl::Status CopyToHost(void* host, const void* device, size_t bytes) override;
  // Large payloads are copied by all threads of the arena.
  absl::Status Gather(void* device, const Payload& payload) override;
  absl::StatusOr<std::unique_ptr<Event>> Record() override;
  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  ThreadArena& arena_;
};

}  // namespace scanserve
