// Device memory taken from a pool.
#pragma once

#include <cstddef>
#include <memory>

namespace scanserve {

class MemoryPool;

// Owns a block of a MemoryPool and gives it back on destruction; keeps the pool alive. Move-only.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<MemoryPool> pool, void* data, size_t size, size_t block_size)
      : pool_(std::move(pool)), data_(data), size_(size), block_size_(block_size) {}
  ~Buffer() { Reset(); }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;

  void* data() const { return data_; }
  size_t size() const { return size_; }
  // What it takes of the pool: MemoryPool::BlockSize(size()).
  size_t block_size() const { return block_size_; }
  explicit operator bool() const { return data_ != nullptr; }
  void Reset();

 private:
  std::shared_ptr<MemoryPool> pool_;
  void* data_ = nullptr;
  size_t size_ = 0;        // as asked for
  size_t block_size_ = 0;  // as taken from the pool
};

}  // namespace scanserve
