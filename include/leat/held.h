// How leat's movable objects hold their implementation.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "leat/error.h"

namespace leat::detail {

// A pointer, std::unique_ptr or plain, that is null after a move and throws kClosed when it is used
// while null: a call on a moved-from object is an error with a sentence instead of an access to
// address 0. The sentence is kWhenEmpty of the element type. Threads: as for the pointer.
template <typename Pointer>
class Held {
 public:
  Held() noexcept = default;
  Held(Pointer pointer) noexcept : pointer_(std::move(pointer)) {}  // NOLINT: stands for it
  Held(Held&& other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)) {}
  Held& operator=(Held&& other) noexcept {
    pointer_ = std::exchange(other.pointer_, nullptr);
    return *this;
  }
  ~Held() = default;

  auto& operator*() const {
    if (pointer_ == nullptr) [[unlikely]]
      throw_empty();
    return *pointer_;
  }
  auto* operator->() const { return &**this; }

  bool operator==(std::nullptr_t) const noexcept { return pointer_ == nullptr; }
  // Returns the pointer and becomes null.
  Pointer take() noexcept { return std::exchange(pointer_, nullptr); }

 private:
  [[noreturn]] static void throw_empty() {
    using Element = typename std::pointer_traits<Pointer>::element_type;
    throw Error(ErrorCode::kClosed, Element::kWhenEmpty);
  }

  Pointer pointer_ = nullptr;
};

}  // namespace leat::detail
