// What a spinning loop does between two looks.
#pragma once

namespace leat::detail {

// Hints to the processor that this thread spins, so that the other thread of its core gets more of
// it.
inline void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace leat::detail
