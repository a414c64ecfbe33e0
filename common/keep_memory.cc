#include "common/keep_memory.h"

#include <malloc.h>
#include <sys/mman.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace scanserve {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// Address space, not memory: pages are there once they are touched.
constexpr size_t kHeapBytes = size_t{1} << 30;

}  // namespace

void KeepMemory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_ARENA_MAX, 1);
  // The heap grows to its full size now, so that one call covers all that malloc will hand out.
  void* heap = std::malloc(kHeapBytes);
  if (heap == nullptr) return;
  const uintptr_t first = (reinterpret_cast<uintptr_t>(heap) + kHugePage - 1) & ~(kHugePage - 1);
  madvise(reinterpret_cast<void*>(first), kHeapBytes - 2 * kHugePage, MADV_HUGEPAGE);
  std::free(heap);
}

}  // namespace scanserve
