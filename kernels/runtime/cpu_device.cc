#include "kernels/runtime/cpu_device.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace scanserve {
namespace {

// Below this a second thread costs more than it saves.
constexpr size_t kParallelGatherBytes = size_t{8} << 20;
constexpr size_t kGatherBlock = size_t{1} << 20;

struct Block {
  char* to;
  const char* from;
  size_t size;
};

// The copies that make up `payload`, each small enough to be shared out.
std::vector<Block> BlocksOf(char* to, const Payload& payload) {
  std::vector<Block> blocks;
  blocks.reserve(payload.pieces.size());
  for (const absl::Span<const char> piece : payload.pieces) {
    for (size_t done = 0; done < piece.size(); done += kGatherBlock) {
      const size_t size = std::min(kGatherBlock, piece.size() - done);
      blocks.push_back({to, piece.data() + done, size});
      to += size;
    }
  }
  return blocks;
}

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
  if (payload.size < kParallelGatherBytes) {
    payload.CopyTo(device);
    return absl::OkStatus();
  }
  const std::vector<Block> blocks = BlocksOf(static_cast<char*>(device), payload);
  return Launch([&blocks] {
    ParallelFor(static_cast<int64_t>(blocks.size()), [&blocks](int64_t i) {
      std::memcpy(blocks[i].to, blocks[i].from, blocks[i].size);
    });
  });
}

absl::StatusOr<std::unique_ptr<Event>> CpuStream::Record() {
  return std::make_unique<CompletedEvent>();
}

}  // namespace scanserve
