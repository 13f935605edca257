// The memory of a call that reads or writes, one part after the other.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <span>

namespace leat::detail::c {

// Value type; points to the caller's iovecs.
class Buffers {
 public:
  explicit Buffers(std::span<const iovec> parts) : parts_(parts) {
    for (const iovec& part : parts_) left_ += part.iov_len;
    skip_empty();
  }

  std::size_t left() const { return left_; }
  // The next bytes in one piece; empty only at the end.
  std::span<std::byte> front() const {
    if (parts_.empty()) return {};
    return std::span(static_cast<std::byte*>(parts_[0].iov_base), parts_[0].iov_len)
        .subspan(offset_);
  }
  // At most front().size().
  void advance(std::size_t bytes) {
    offset_ += bytes;
    left_ -= bytes;
    skip_empty();
  }

 private:
  void skip_empty() {
    while (!parts_.empty() && offset_ == parts_[0].iov_len) {
      parts_ = parts_.subspan(1);
      offset_ = 0;
    }
  }

  std::span<const iovec> parts_;
  std::size_t offset_ = 0;
  std::size_t left_ = 0;
};

}  // namespace leat::detail::c
