// What a process uses of memory and processor, and what network devices have counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace leat::bench {

// Resident memory of this process, exact, from /proc/self/smaps, without program files.
struct ResidentMemory {
  std::uint64_t own_bytes = 0;     // anonymous: heap, stacks, registered memory
  std::uint64_t shared_bytes = 0;  // of other processes too (device shm)
};
ResidentMemory resident_memory();

// Of all that was resident at once since reset_peak(), how much is no more. Only what is at least
// 1 MiB, as the kernel's count of the peak is not finer; else 0.
std::uint64_t released_since_peak();
// The peak is from now on. Does nothing where the kernel does not allow it.
void reset_peak();

// How many descriptors this process has open.
std::size_t open_descriptors();

// User and system time of all threads of this process.
double cpu_seconds();

// Of this process and its children, as they are now: processor time, and how often they gave a
// processor up or lost it. The difference of two is a load's cost, which other processes of the
// machine change less than its duration.
struct FamilyUsage {
  double cpu_seconds = 0;
  std::uint64_t switches = 0;
};
FamilyUsage family_usage();

// Packets that the verbs device "ib:NAME" has sent, acknowledgements and what went again included;
// 0 if its driver does not count.
std::uint64_t packets_sent(const std::string& device);
// Segments that TCP of this host has sent again.
std::uint64_t tcp_segments_resent();

}  // namespace leat::bench
