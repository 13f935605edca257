// Counts what a process holds, for tests that check that nothing is left behind.
#pragma once

#include <cstddef>
#include <iosfwd>

namespace leat::detail {

struct Holdings {
  std::size_t descriptors = 0;
  std::size_t memfd_maps = 0;   // mappings of memfds and of /dev/shm files
  std::size_t shm_entries = 0;  // files in /dev/shm with leat in their name
  std::size_t threads = 0;
  std::size_t resident_bytes = 0;
};
void PrintTo(const Holdings& holdings, std::ostream* out);

Holdings count_holdings();

// EXPECTs that now no more is held than at `before`. Waits a while for what ends in the background
// (threads of a listener, the linger of a closed channel). Memory may have grown by
// `allowed_growth_bytes`, which is not looked at under a sanitizer: those keep freed memory.
void expect_no_more_than(const Holdings& before, std::size_t allowed_growth_bytes);

}  // namespace leat::detail
