// A caching allocator of device memory under a byte budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "kernels/runtime/buffer.h"

namespace scanserve {

// Where a pool gets its memory. Implementations are thread-safe.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // Null on failure. At least 64-byte aligned.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* data, size_t bytes) = 0;
};

// Host memory; blocks of 2 MiB and more are aligned to and advised as huge pages.
std::unique_ptr<MemorySource> HostMemorySource();

// Thread-safe. Freed blocks are kept by size and used again; `Trim` gives them back.
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  struct Stats {
    size_t budget_bytes = 0;
    size_t used_bytes = 0;      // in buffers that are alive
    size_t reserved_bytes = 0;  // used and cached
    size_t peak_used_bytes = 0;
    uint64_t allocation_failures = 0;
  };

  static std::shared_ptr<MemoryPool> Create(std::unique_ptr<MemorySource> source,
                                            size_t budget_bytes);
  ~MemoryPool();

  // What a buffer of `bytes` takes of the budget: sizes are rounded up, so that blocks fit again.
  static size_t BlockSize(size_t bytes);

  // RESOURCE_EXHAUSTED when the budget or the device has no room, even after a trim; the sentence
  // gives the sizes. The memory is uninitialised. Zero bytes give a valid, non-null buffer.
  absl::StatusOr<Buffer> Allocate(size_t bytes);

  Stats GetStats() const;
  // Starts a new high-water mark from what is in use now.
  void ResetPeak();
  // Gives cached blocks back to the device.
  void Trim();

 private:
  friend class Buffer;
  MemoryPool(std::unique_ptr<MemorySource> source, size_t budget_bytes)
      : source_(std::move(source)), budget_bytes_(budget_bytes) {}
  void Release(void* data, size_t block_size);
  void TrimLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::unique_ptr<MemorySource> source_;
  const size_t budget_bytes_;
  mutable Mutex mutex_;
  std::map<size_t, std::vector<void*>> cached_ ABSL_GUARDED_BY(mutex_);
  size_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t reserved_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t peak_used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t allocation_failures_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace scanserve
