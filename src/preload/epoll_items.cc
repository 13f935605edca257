#include "preload/epoll_items.h"

#include <sys/random.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace leat::preload {
namespace {

// The upper half of all marks of this process.
std::uint64_t random_mark() {
  static const std::uint64_t random = [] {
    std::uint32_t bits = 0;
    if (getrandom(&bits, sizeof(bits), 0) != sizeof(bits)) bits = 0x9e3779b9;
    return static_cast<std::uint64_t>(bits | 1U);
  }();
  return random;
}

}  // namespace

void EpollItem::leave_bells() {
  if (bells != 0) object->connection.leave(std::exchange(bells, 0));
}

EpollItems::EpollItems() : mark_(random_mark()) {}

EpollItems::~EpollItems() {
  for (EpollItem* item : places_) {
    const std::unique_ptr<EpollItem> owned(item);
    if (item != nullptr) item->leave_bells();
  }
}

epoll_data_t EpollItems::mark(const EpollItem& item) const noexcept {
  epoll_data_t data{};
  data.u64 = (mark_ << 32U) | item.place_;
  return data;
}

EpollItem* EpollItems::of_mark(epoll_data_t data) const noexcept {
  const auto place = static_cast<std::uint32_t>(data.u64);
  const std::size_t index = place & kPlaceMask;
  if (!is_mark(data) || index >= places_.size()) return nullptr;
  EpollItem* item = places_[index];
  const bool meant =
      item != nullptr && item->place_ == place && item->state != EpollItem::State::kDead;
  return meant ? item : nullptr;
}

EpollItem& EpollItems::place(int fd, const Reference& object, std::size_t index, std::uint32_t uses,
                             bool bound) {
  auto item = std::make_unique<EpollItem>();
  item->fd = item->alive = fd;
  object->references.fetch_add(1, std::memory_order_relaxed);  // the item's; the caller has one
  item->object = Reference(object.get());
  const auto number = static_cast<std::size_t>(bound ? fd : 0);
  if (by_number_.size() <= number) by_number_.resize(number + 1);
  while (places_.size() <= index) {
    places_.push_back(nullptr);
    free_places_.reserve(places_.capacity());
    if (places_.size() <= index)
      free_places_.push_back(static_cast<std::uint32_t>(places_.size() - 1));
  }
  item->place_ = static_cast<std::uint32_t>(index) | (uses << kPlaceBits);
  places_[index] = item.release();
  if (bound) by_number_[number] = places_[index];
  return *places_[index];
}

EpollItem& EpollItems::add(int fd, const Reference& object) {
  std::size_t index = places_.size();
  if (!free_places_.empty()) {
    index = free_places_.back();
    free_places_.pop_back();
  }
  return place(fd, object, index, uses_++, true);
}

EpollItem* EpollItems::add_marked(int fd, const Reference& object, epoll_data_t mark, bool bound) {
  const auto wanted = static_cast<std::uint32_t>(mark.u64);
  const std::size_t index = wanted & kPlaceMask;
  if (index < places_.size() && places_[index] != nullptr) return nullptr;
  std::erase(free_places_, static_cast<std::uint32_t>(index));
  return &place(fd, object, index, wanted >> kPlaceBits, bound);
}

void EpollItems::unbind(EpollItem& item) noexcept {
  if (of_number(item.fd) == &item) by_number_[static_cast<std::size_t>(item.fd)] = nullptr;
}

void EpollItems::bury(EpollItem& item) noexcept {
  if (item.state == EpollItem::State::kDead) return;
  unbind(item);
  item.leave_bells();
  item.state = EpollItem::State::kDead;
  item.next_dead_ = std::exchange(dead_, &item);
  const Reference last = std::move(item.object);
}

void EpollItems::purge_dead() noexcept {
  while (dead_ != nullptr) {
    const std::unique_ptr<EpollItem> item(std::exchange(dead_, dead_->next_dead_));
    const std::uint32_t index = item->place_ & kPlaceMask;
    places_[index] = nullptr;
    free_places_.push_back(index);
  }
}

}  // namespace leat::preload
