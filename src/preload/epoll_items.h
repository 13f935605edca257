// The descriptors in a set of epoll that leat knows, found by their number or by the mark under
// which they are in the kernel's set.
#pragma once

#include <sys/epoll.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "posix/epoll_interest.h"
#include "preload/descriptors.h"

namespace leat::preload {

struct EpollItem : posix::EpollInterest {
  enum class State : std::uint8_t {
    kCurrent,  // the program has it in the set
    kRemoved,  // the program took it out; only the kernel's set still has it
    kOrphan,   // its own number was closed: the program can neither change it nor take it out
    kDead,     // waits to be freed
  };

  EpollItem() = default;
  EpollItem(const EpollItem&) = delete;
  EpollItem& operator=(const EpollItem&) = delete;
  void leave_bells();

  State state = State::kCurrent;
  int fd = -1;     // it was added with
  int alive = -1;  // one that still means the same: of several, that one may have been closed
  Reference object;
  // What the object was when the kernel was told last.
  Kind told_kind = Kind::kFree;
  bool told_awaiting = false;
  bool hot = false;    // looked at in every round, else only the bell tells
  unsigned bells = 0;  // that are rung for it
  unsigned idle = 0;   // how often it was slept at since it was ready
  bool muted = false;  // when it was carried: the kernel does not know, and tells once more
  unsigned wakes = 0;
  // Rounds of the set (EpollSet::round_): when its bell rang, and when it was told, and where.
  std::uint64_t rung_in = 0;
  std::uint64_t told_in = 0;
  epoll_event* told = nullptr;

 private:
  friend class EpollItems;
  std::uint32_t place_ = 0;  // with a count of uses above, so that no two have the same in a row
  EpollItem* next_dead_ = nullptr;
};

// For one thread at a time.
class EpollItems {
 public:
  EpollItems();
  ~EpollItems();
  EpollItems(const EpollItems&) = delete;
  EpollItems& operator=(const EpollItems&) = delete;

  // The one that the program means by a number, or has taken out of the set.
  EpollItem* of_number(int fd) const noexcept {
    return fd >= 0 && static_cast<std::size_t>(fd) < by_number_.size()
               ? by_number_[static_cast<std::size_t>(fd)]
               : nullptr;
  }
  // Marks have random bits that the program's own data does not have.
  bool is_mark(epoll_data_t data) const noexcept { return (data.u64 >> 32U) == mark_; }
  epoll_data_t mark(const EpollItem& item) const noexcept;
  // Null: what had it is gone.
  EpollItem* of_mark(epoll_data_t data) const noexcept;

  std::uint64_t upper_half() const noexcept { return mark_; }

  // Nothing may have the number.
  EpollItem& add(int fd, const Reference& object);
  // For items of the program that executed this one, before all others: they keep their marks, and
  // new ones get others.
  void take_marks(std::uint64_t upper_half, std::uint32_t seed) noexcept {
    mark_ = upper_half;
    become_copy(seed);
  }
  // Null: another has the mark. Not `bound`: the number does not mean it any more.
  EpollItem* add_marked(int fd, const Reference& object, epoll_data_t mark, bool bound);
  // How many there can be until the next add().
  std::size_t room() const noexcept { return places_.capacity(); }
  // From now on its number does not mean it.
  void unbind(EpollItem& item) noexcept;
  // It is gone. Neither this nor unbind() allocates or frees memory: a signal handler may close.
  void bury(EpollItem& item) noexcept;
  // Frees those.
  void purge() noexcept {
    if (dead_ != nullptr) [[unlikely]]
      purge_dead();
  }
  // The process is a copy, and shares the kernel's set with the original: new items get marks that
  // are not likely those of the original's new ones.
  void become_copy(std::uint32_t seed) noexcept { uses_ += seed; }

  template <typename Visit>
  void for_each(const Visit& visit) {
    for (EpollItem* item : places_) {
      if (item != nullptr && item->state != EpollItem::State::kDead) visit(*item);
    }
  }

 private:
  static constexpr unsigned kPlaceBits = 20;
  static constexpr std::uint32_t kPlaceMask = (1U << kPlaceBits) - 1;

  void purge_dead() noexcept;
  EpollItem& place(int fd, const Reference& object, std::size_t index, std::uint32_t uses,
                   bool bound);

  std::uint64_t mark_;
  std::vector<EpollItem*> places_;  // owns them
  std::vector<std::uint32_t> free_places_;
  std::vector<EpollItem*> by_number_;
  EpollItem* dead_ = nullptr;
  std::uint32_t uses_ = 0;
};

}  // namespace leat::preload
