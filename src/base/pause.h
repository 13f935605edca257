// What a spinning loop does between two looks.
#pragma once

namespace leat::detail {

// Tells the processor, which may give the other thread of its core more.
inline void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace leat::detail
