#include "socket/c/arrivals.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace leat::detail::c {
namespace {

// How many of `bytes` there was room for.
std::size_t copy(std::span<const std::byte> bytes, Buffers& to, bool discard) {
  std::size_t copied = 0;
  while (copied < bytes.size() && to.left() != 0) {
    const std::size_t part = std::min(bytes.size() - copied, to.front().size());
    if (!discard) std::memcpy(to.front().data(), bytes.data() + copied, part);
    to.advance(part);
    copied += part;
  }
  return copied;
}

}  // namespace

void Arrivals::add(Message message) {
  if (message.size() == 0) return;
  bytes_ += message.size();
  if (first_) {
    others_.push_back(std::move(message));
  } else {
    first_ = std::move(message);
  }
}

std::size_t Arrivals::take(Buffers& to, bool discard) {
  std::size_t total = 0;
  while (to.left() != 0 && first_) {
    const std::size_t part = copy(first_.bytes().subspan(taken_), to, discard);
    taken_ += part;
    total += part;
    if (taken_ != first_.size()) break;
    taken_ = 0;
    first_.release();
    if (others_.empty()) continue;
    first_ = std::move(others_.front());
    others_.pop_front();
  }
  bytes_ -= total;
  return total;
}

std::size_t Arrivals::peek(Buffers& to, bool discard) const {
  if (!first_) return 0;
  std::size_t total = copy(first_.bytes().subspan(taken_), to, discard);
  for (const Message& message : others_) {
    if (to.left() == 0) break;
    total += copy(message.bytes(), to, discard);
  }
  return total;
}

void Arrivals::clear() {
  first_.release();
  others_.clear();
  bytes_ = taken_ = 0;
}

}  // namespace leat::detail::c
