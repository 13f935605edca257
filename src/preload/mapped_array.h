// Elements in pages of their own: the lock of malloc may be held by a thread that the child of a
// vfork() does not have.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace leat::preload {

// Room for `most` elements, of which those are alive that were pushed.
template <typename Element>
class MappedArray {
 public:
  MappedArray() noexcept = default;
  ~MappedArray() {
    clear();
    if (elements_ != nullptr) munmap(elements_, bytes_);
  }
  MappedArray(const MappedArray&) = delete;
  MappedArray& operator=(const MappedArray&) = delete;

  // Once, before all else. False: memory has run out.
  bool reserve(std::size_t most) noexcept {
    bytes_ = most * sizeof(Element);
    if (bytes_ == 0) return true;
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, kFlags, -1, 0);
    if (memory == MAP_FAILED) return false;
    elements_ = static_cast<Element*>(memory);
    most_ = most;
    return true;
  }
  std::size_t room() const noexcept { return most_ - count_; }
  template <typename... Arguments>
  Element& push(Arguments&&... arguments) noexcept {
    return *new (&elements_[count_++]) Element{static_cast<Arguments&&>(arguments)...};
  }

  void clear() noexcept {
    while (count_ > 0) elements_[--count_].~Element();
  }

  std::size_t size() const noexcept { return count_; }
  Element* data() noexcept { return elements_; }
  Element* begin() noexcept { return elements_; }
  Element* end() noexcept { return elements_ + count_; }
  const Element* begin() const noexcept { return elements_; }
  const Element* end() const noexcept { return elements_ + count_; }

 private:
  Element* elements_ = nullptr;
  std::size_t most_ = 0;
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace leat::preload
