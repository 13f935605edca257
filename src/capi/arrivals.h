// Messages that have come, as the bytes of a stream.
#pragma once

#include <cstddef>
#include <deque>

#include "leat/channel.h"
#include "posix/iovecs.h"

namespace leat::detail::c {

// A message gives its memory back when its last byte is taken. For one thread at a time.
class Arrivals {
 public:
  bool empty() const { return bytes_ == 0; }
  std::size_t bytes() const { return bytes_; }
  // As much as is to be taken in before the program reads: large messages hold up their sender by
  // the memory that they keep, but small ones carry their bytes and would have no end.
  bool full() const { return others_.size() >= kMostMessages; }

  void add(Message message);
  // How many bytes left.
  std::size_t take(posix::Buffers& to);
  // The same, and they stay.
  std::size_t peek(posix::Buffers& to) const;
  void clear();

 private:
  static constexpr std::size_t kMostMessages = 16'384;

  Message first_;          // apart, because mostly there is one
  std::size_t taken_ = 0;  // of first_
  std::deque<Message> others_;
  std::size_t bytes_ = 0;
};

}  // namespace leat::detail::c
