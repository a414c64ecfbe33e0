#include "kernels/runtime/memory_pool.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/host_memory.h"

namespace scanserve {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallest = 256;

class HostSource final : public MemorySource {
 public:
  void* Allocate(size_t bytes) override { return AllocateHost(bytes); }
  void Free(void* data, size_t) override { std::free(data); }
};

}  // namespace

std::unique_ptr<MemorySource> HostMemorySource() { return std::make_unique<HostSource>(); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    Reset();
    pool_ = std::move(other.pool_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    block_size_ = std::exchange(other.block_size_, 0);
  }
  return *this;
}

void Buffer::Reset() {
  if (data_ != nullptr) pool_->Release(data_, block_size_);
  pool_.reset();
  data_ = nullptr;
  size_ = block_size_ = 0;
}

std::shared_ptr<MemoryPool> MemoryPool::Create(std::unique_ptr<MemorySource> source,
                                               size_t budget_bytes) {
  return std::shared_ptr<MemoryPool>(new MemoryPool(std::move(source), budget_bytes));
}

MemoryPool::~MemoryPool() { Trim(); }

// Block sizes: four steps for each power of two, and whole huge pages for large ones, so that
// blocks fit again for requests of about the same size.
size_t MemoryPool::BlockSize(size_t bytes) {
  if (bytes <= kSmallest) return kSmallest;
  if (bytes > 4 * kHugePage) return (bytes + kHugePage - 1) / kHugePage * kHugePage;
  size_t power = kSmallest;
  while (power * 2 < bytes) power *= 2;
  const size_t step = power / 4;
  return (bytes + step - 1) / step * step;
}

absl::StatusOr<Buffer> MemoryPool::Allocate(size_t bytes) {
  const size_t block = bytes > budget_bytes_ ? bytes : BlockSize(bytes);
  MutexLock lock(mutex_);
  void* data = nullptr;
  if (auto it = cached_.find(block); it != cached_.end() && !it->second.empty()) {
    data = it->second.back();
    it->second.pop_back();
  } else {
    if (block > budget_bytes_ - std::min(budget_bytes_, reserved_bytes_)) TrimLocked();
    if (block <= budget_bytes_ - std::min(budget_bytes_, reserved_bytes_)) {
      data = source_->Allocate(block);
    }
    if (data == nullptr) {
      ++allocation_failures_;
      return absl::ResourceExhaustedError(absl::StrCat("device memory: ", bytes,
                                                       " bytes asked for, ", used_bytes_, " of ",
                                                       budget_bytes_, " in use"));
    }
    reserved_bytes_ += block;
  }
  used_bytes_ += block;
  peak_used_bytes_ = std::max(peak_used_bytes_, used_bytes_);
  return Buffer(shared_from_this(), data, bytes, block);
}

void MemoryPool::Release(void* data, size_t block_size) {
  MutexLock lock(mutex_);
  used_bytes_ -= block_size;
  cached_[block_size].push_back(data);
}

MemoryPool::Stats MemoryPool::GetStats() const {
  MutexLock lock(mutex_);
  Stats stats;
  stats.budget_bytes = budget_bytes_;
  stats.used_bytes = used_bytes_;
  stats.reserved_bytes = reserved_bytes_;
  stats.peak_used_bytes = peak_used_bytes_;
  stats.allocation_failures = allocation_failures_;
  return stats;
}

void MemoryPool::ResetPeak() {
  MutexLock lock(mutex_);
  peak_used_bytes_ = used_bytes_;
}

void MemoryPool::Trim() {
  MutexLock lock(mutex_);
  TrimLocked();
}

void MemoryPool::TrimLocked() {
  for (const auto& [size, blocks] : cached_) {
    for (void* data : blocks) source_->Free(data, size);
    reserved_bytes_ -= size * blocks.size();
  }
  cached_.clear();
}

}  // namespace scanserve
