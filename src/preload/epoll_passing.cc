// A set of epoll that a program passes to one that it executes. The kernel's set stays as it is,
// with its marks; what they mean is told in a memfd.
#include "preload/epoll_passing.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "preload/epoll_set.h"
#include "preload/hidden.h"
#include "preload/real.h"
#include "preload/shared_memory.h"
#include "preload/socket_facts.h"

namespace leat::preload {
namespace {

constexpr std::uint32_t kMagic = 0x7465736c;

struct Header {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t count;
  std::uint32_t edges;
  std::uint64_t mark;
};

// As of EpollItem.
struct Record {
  epoll_data_t mark;
  epoll_data_t data;
  std::uint64_t seen_arrivals;
  int fd;
  std::uint32_t events;
  std::uint32_t seen_state;
  std::uint32_t seen_full;
  std::uint32_t reported;
  EpollItem::State state;
  Kind told_kind;
  bool disabled;
  bool muted;
};

}  // namespace

int EpollSet::tell() noexcept {
  const Hold hold(*this);
  if (!hold) return -1;
  std::uint32_t count = 0;
  items_.for_each([&count](const Item&) { ++count; });
  int memfd = -1;
  const std::size_t bytes = sizeof(Header) + count * sizeof(Record);
  void* memory = new_sealed_memory("leat-set", bytes, memfd);
  if (memory == nullptr) return -1;
  new (memory) Header{.magic = kMagic,
                      .version = kMemoryVersion,
                      .count = count,
                      .edges = edges_.load(std::memory_order_relaxed),
                      .mark = items_.upper_half()};
  auto* record = reinterpret_cast<Record*>(static_cast<Header*>(memory) + 1);
  items_.for_each([&](const Item& item) {
    new (record++) Record{.mark = items_.mark(item),
                          .data = item.data,
                          .seen_arrivals = item.seen_arrivals,
                          .fd = item.fd,
                          .events = item.events,
                          .seen_state = item.seen_state,
                          .seen_full = item.seen_full,
                          .reported = item.reported,
                          .state = item.state,
                          .told_kind = item.told_kind,
                          .disabled = item.disabled,
                          .muted = item.muted};
  });
  munmap(memory, bytes);
  return hide(memfd);
}

// The caller's alone as yet.
void EpollSet::learn(const void* memory) {
  const Header& header = *static_cast<const Header*>(memory);
  const auto* records = reinterpret_cast<const Record*>(&header + 1);
  // Another process may have the set, too.
  inherited_ = true;
  edges_.store(header.edges, std::memory_order_relaxed);
  items_.take_marks(header.mark, process_id());
  used_.store(true, std::memory_order_release);
  for (const Record* record = records; record != records + header.count; ++record) {
    // What was closed on exec has left the set by itself; and of what only its copies are left
    // nobody knows any more.
    if (record->state == Item::State::kOrphan || record->fd < 0) continue;
    Reference object = find(record->fd);
    if (!object && is_connectable(record->fd)) object = preload::add(record->fd, Kind::kSocket);
    if (!object || items_.of_number(record->fd) != nullptr) continue;
    Item* item = items_.add_marked(record->fd, object, record->mark);
    if (item == nullptr) continue;
    for (std::vector<Item*>* list : {&hot_, &orphans_, &waiting_}) list->reserve(items_.room());
    item->data = record->data;
    item->events = record->events;
    item->seen_arrivals = record->seen_arrivals;
    item->seen_state = record->seen_state;
    item->seen_full = record->seen_full;
    item->reported = record->reported;
    item->state = record->state;
    item->told_kind = record->told_kind;
    item->disabled = record->disabled;
    item->muted = record->muted;
    if (object.is(Kind::kEpoll)) has_sets_.store(true, std::memory_order_relaxed);
    if (object.is(Kind::kSocket)) has_sockets_.store(true, std::memory_order_relaxed);
    if (item->told_kind != object.kind()) decided(*item);
    if (item->state == Item::State::kCurrent) heat(*item);
  }
}

bool is_set(int fd) noexcept {
  char name[32];
  char target[32] = {};
  snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
  return readlink(name, target, sizeof(target) - 1) > 0 &&
         std::strcmp(target, "anon_inode:[eventpoll]") == 0;
}

bool add_set(int fd) noexcept {
  Reference object = add(fd, Kind::kFree);
  if (!object) return false;
  object->set = new (std::nothrow) EpollSet(*object, fd);
  if (object->set != nullptr) {
    object->kind.store(Kind::kEpoll, std::memory_order_release);
    return true;
  }
  forget(fd);
  return false;
}

void take_over_set(int fd, int hidden) {
  struct stat status {};
  const bool sound = is_sealed(hidden) && fstat(hidden, &status) == 0 &&
                     status.st_size >= static_cast<off_t>(sizeof(Header));
  const auto bytes = static_cast<std::size_t>(status.st_size);
  void* memory = sound ? mmap(nullptr, bytes, PROT_READ, MAP_SHARED, hidden, 0) : MAP_FAILED;
  close_hidden(hidden);
  if (memory == MAP_FAILED) return;
  const auto& header = *static_cast<const Header*>(memory);
  const Reference object = find(fd);
  if (object.is(Kind::kEpoll) && header.magic == kMagic && header.version == kMemoryVersion &&
      header.count == (bytes - sizeof(Header)) / sizeof(Record))
    object->set->learn(memory);
  munmap(memory, bytes);
}

}  // namespace leat::preload
