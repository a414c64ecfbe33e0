#include "common/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "common/parallel_for.h"

namespace scanserve {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// Below this a second thread costs more than it saves.
constexpr size_t kParallelBytes = size_t{8} << 20;
constexpr size_t kBlock = size_t{1} << 20;

struct Block {
  char* to;
  const char* from;
  size_t size;
};

// The copies that make up `payload`, each small enough to be shared out.
std::vector<Block> BlocksOf(const Payload& payload, char* to) {
  std::vector<Block> blocks;
  blocks.reserve(payload.pieces.size());
  for (const absl::Span<const char> piece : payload.pieces) {
    for (size_t done = 0; done < piece.size(); done += kBlock) {
      const size_t size = std::min(kBlock, piece.size() - done);
      blocks.push_back({to, piece.data() + done, size});
      to += size;
    }
  }
  return blocks;
}

}  // namespace

void* AllocateHost(size_t bytes) {
  const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const size_t rounded = std::max((bytes + alignment - 1) / alignment, size_t{1}) * alignment;
  void* data = std::aligned_alloc(alignment, rounded);
  if (data != nullptr && alignment == kHugePage) madvise(data, rounded, MADV_HUGEPAGE);
  return data;
}

void Gather(const Payload& payload, void* destination) {
  if (payload.size < kParallelBytes) {
    payload.CopyTo(destination);
    return;
  }
  const std::vector<Block> blocks = BlocksOf(payload, static_cast<char*>(destination));
  ParallelFor(static_cast<int64_t>(blocks.size()),
              [&blocks](int64_t i) { std::memcpy(blocks[i].to, blocks[i].from, blocks[i].size); });
}

}  // namespace scanserve
