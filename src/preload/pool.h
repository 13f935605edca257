// Unused objects of one type. It uses neither a lock nor malloc, so that the handler of a signal
// may take and give them, whatever it has interrupted. Memory never goes back to the system: a look
// at an object that is just being given back is harmless.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

namespace leat::preload {

// T has a member `std::atomic<T*> next_free`. Threads: any.
template <typename T>
class Pool {
 public:
  // As it was given back, or new; null if memory is out.
  T* take() noexcept {
    // Acquire, with the release of give(): the taker sees next_free, and what else was written.
    std::uint64_t head = head_.load(std::memory_order_acquire);
    for (;;) {
      T* object = pointer(head);
      if (object == nullptr) return refill();
      // Relaxed: if another thread was faster this is anything, and the exchange fails, as the tag
      // changes with every change.
      T* next = object->next_free.load(std::memory_order_relaxed);
      if (head_.compare_exchange_weak(head, word(next, head), std::memory_order_acquire))
        return object;
    }
  }

  void give(T* object) noexcept {
    std::uint64_t head = head_.load(std::memory_order_relaxed);
    do {
      object->next_free.store(pointer(head), std::memory_order_relaxed);
      // Release: the taker sees what was written to the object.
    } while (!head_.compare_exchange_weak(head, word(object, head), std::memory_order_release,
                                          std::memory_order_relaxed));
  }

 private:
  static constexpr unsigned kTagShift = 48;  // above what addresses of user space take
  static constexpr std::size_t kAtOnce = 32;

  static T* pointer(std::uint64_t word) noexcept {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): packed by word()
    return reinterpret_cast<T*>(word & ((std::uint64_t{1} << kTagShift) - 1));
  }
  static std::uint64_t word(T* object, std::uint64_t before) noexcept {
    return (((before >> kTagShift) + 1) << kTagShift) | reinterpret_cast<std::uintptr_t>(object);
  }

  T* refill() noexcept {
    void* memory = mmap(nullptr, kAtOnce * sizeof(T), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    auto* objects = static_cast<std::byte*>(memory);
    for (std::size_t i = 1; i < kAtOnce; ++i) give(new (objects + i * sizeof(T)) T);
    return new (objects) T;
  }

  std::atomic<std::uint64_t> head_{0};
};

}  // namespace leat::preload
