#include "kernels/runtime/cpu_device.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/host_memory.h"

namespace scanserve {
namespace {

class CompletedEvent final : public Event {
 public:
  bool IsComplete() const override { return true; }
  absl::Status Wait() override { return absl::OkStatus(); }
};

}  // namespace

absl::string_view NameOf(DeviceKind kind) { return kind == DeviceKind::kCpu ? "cpu" : "cuda"; }

CpuDevice::CpuDevice(const CpuDeviceOptions& options)
    : pool_(MemoryPool::Create(HostMemorySource(), options.memory_budget_bytes)),
      arena_(options.num_threads) {
  caps_.kind = DeviceKind::kCpu;
  caps_.num_threads = arena_.num_threads();
  caps_.description =
      absl::StrCat("CPU, ", caps_.num_threads, caps_.num_threads == 1 ? " thread" : " threads");
}

absl::StatusOr<std::unique_ptr<Stream>> CpuDevice::CreateStream() {
  return std::make_unique<CpuStream>(arena_);
}

absl::Status CpuStream::Launch(absl::FunctionRef<void()> task) {
  arena_.Execute(task);
  return absl::OkStatus();
}

absl::Status CpuStream::CopyToDevice(void* device, const void* host, size_t bytes) {
  std::memcpy(device, host, bytes);
  return absl::OkStatus();
}

absl::Status CpuStream::CopyToHost(void* host, const void* device, size_t bytes) {
  std::memcpy(host, device, bytes);
  return absl::OkStatus();
}

absl::Status CpuStream::Gather(void* device, const Payload& payload) {
  return Launch([&] { scanserve::Gather(payload, device); });
}

absl::StatusOr<std::unique_ptr<Event>> CpuStream::Record() {
  return std::make_unique<CompletedEvent>();
}

}  // namespace scanserve
