// Scratch memory of a plan: booked when the plan is made, granted when it runs.
#pragma once

#include <cstddef>

namespace scanserve {

// Adds up the scratch areas of a plan. Each begins on a 64-byte boundary.
class WorkspaceLayout {
 public:
  // Returns the byte offset of the new area.
  size_t Book(size_t bytes) {
    const size_t offset = size_;
    size_ += (bytes + 63) / 64 * 64;
    return offset;
  }
  template <typename T>
  size_t Book(size_t count) {
    return Book(count * sizeof(T));
  }
  size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};

// Memory of at least WorkspaceLayout::size() bytes for one run. Contents are undefined at first.
class Workspace {
 public:
  Workspace() = default;
  Workspace(void* data, size_t size) : data_(static_cast<std::byte*>(data)), size_(size) {}

  template <typename T>
  T* At(size_t offset) const {
    return reinterpret_cast<T*>(data_ + offset);
  }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace scanserve
