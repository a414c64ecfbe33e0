// For the start of a program that handles large messages.
#pragma once

namespace scanserve {

// Makes malloc keep what it has once had, in huge pages. Glibc gives large blocks back after each
// message and page-faults them in again for the next, which costs ten times the message itself at
// 16 MB. Call before any thread starts.
void KeepMemory();

}  // namespace scanserve
