// Hints that a cache line is needed soon. Any address is allowed.
#pragma once

namespace leat::detail {

inline void prefetch_for_reading(const void* at) noexcept { __builtin_prefetch(at); }

// Takes the line away from other cores, which would otherwise happen at the first store. The
// compiler emits this instruction only for processors that surely have it; others treat it as a
// no-op.
inline void prefetch_for_writing(const void* at) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
#else
  __builtin_prefetch(at, 1);
#endif
}

}  // namespace leat::detail
