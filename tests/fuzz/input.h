// The bytes that a fuzz target is given, taken one value after another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace leat::detail {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  // Zeros where the bytes have come to their end.
  template <typename Value>
  Value next() {
    Value value{};
    const std::size_t bytes = std::min(sizeof value, size_);
    if (bytes != 0) std::memcpy(&value, data_, bytes);
    data_ += bytes;
    size_ -= bytes;
    return value;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

}  // namespace leat::detail
