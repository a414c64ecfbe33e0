// Host memory for tensors.
#pragma once

#include <cstddef>

#include "common/payload.h"

namespace scanserve {

// 64-byte aligned; from 2 MiB on aligned to, and advised as, huge pages. Null on failure. Zero
// bytes give a valid block. Free with std::free.
void* AllocateHost(size_t bytes);

// As Payload::CopyTo, on several threads where that pays (8 MiB); see ParallelFor.
void Gather(const Payload& payload, void* destination);

}  // namespace scanserve
