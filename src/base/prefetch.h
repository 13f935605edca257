// Hints to fetch a cache line that is needed soon. Any address will do.
#pragma once

namespace leat::detail {

inline void prefetch_for_reading(const void* at) noexcept { __builtin_prefetch(at); }

// Takes the line away from other cores, which would else happen at the first store. The compiler
// only writes this instruction for processors that surely have it; others take it for none.
inline void prefetch_for_writing(const void* at) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
#else
  __builtin_prefetch(at, 1);
#endif
}

}  // namespace leat::detail
