#include "capi/arrivals.h"

#include <span>
#include <utility>

namespace leat::detail::c {
namespace {

std::size_t copy(std::span<const std::byte> bytes, posix::Buffers& to) {
  return to.put(bytes.data(), bytes.size());
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

std::size_t Arrivals::take(posix::Buffers& to) {
  std::size_t total = 0;
  while (to.sound() != 0 && first_) {
    const std::size_t part = copy(first_.bytes().subspan(taken_), to);
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

std::size_t Arrivals::peek(posix::Buffers& to) const {
  if (!first_) return 0;
  std::size_t total = copy(first_.bytes().subspan(taken_), to);
  for (const Message& message : others_) {
    if (to.sound() == 0) break;
    total += copy(message.bytes(), to);
  }
  return total;
}

void Arrivals::clear() {
  first_.release();
  others_.clear();
  bytes_ = taken_ = 0;
}

}  // namespace leat::detail::c
