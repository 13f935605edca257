// A set of epoll that a program passes to one that it executes. The kernel's set stays as it is,
// with its marks; a memfd says what they mean.
#include "preload/epoll_passing.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "preload/epoll_set.h"
#include "preload/hidden.h"
#include "preload/real.h"
#include "preload/shared_memory.h"
#include "preload/socket_facts.h"

namespace leat::preload {
namespace {

constexpr std::uint32_t kEpollMagic = 0x7465736c;

struct Header {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t count;
  std::uint32_t edges;
  std::uint64_t mark;
  EpollOnce once;
};

// As of EpollItem.
struct Record {
  epoll_data_t mark;
  posix::EpollInterest interest;
  std::uint64_t file;  // of its object
  int fd;
  EpollItem::State state;
  Kind told_kind;
  bool muted;
};

// What has that number still, in a program that inherited the set.
Reference of_number(int fd, std::uint64_t file) {
  Reference object = find(fd);
  if (!object && is_connectable(fd)) object = add(fd, Kind::kSocket);
  return object && object->file == file ? std::move(object) : Reference();
}

// A descriptor that means what the number did that is gone, or -1. (Sets cannot be told apart so.)
int copy_of(std::uint64_t file) {
  int copy = -1;
  for_each(0, highest_known(), [&](int fd, const Reference& object) {
    if (object->file == file && !object.is(Kind::kOwn) && !object.is(Kind::kEpoll)) copy = fd;
  });
  return copy;
}

}  // namespace

int EpollSet::tell() noexcept {
  const Hold hold(*this);
  if (!hold) return -1;
  std::uint32_t count = 0;
  items_.for_each([&count](const Item&) { ++count; });
  int memfd = -1;
  const std::size_t bytes = sizeof(Header) + count * sizeof(Record);
  void* memory = new_sealed_memory("leat-set", bytes, memfd);
  std::optional<SpareNumbers> spare;
  if (memory == nullptr) {  // the program may have used up its numbers
    spare.emplace();
    memory = new_sealed_memory("leat-set", bytes, memfd);
  }
  if (memory == nullptr) return -1;
  new (memory) Header{.magic = kEpollMagic,
                      .version = kMemoryVersion,
                      .count = count,
                      .edges = edges_.load(std::memory_order_relaxed) +
                               (once_outdated_.load(std::memory_order_relaxed) ? 1U : 0U),
                      .mark = items_.upper_half(),
                      .once = once_};
  auto* record = reinterpret_cast<Record*>(static_cast<Header*>(memory) + 1);
  items_.for_each([&](const Item& item) {
    new (record++) Record{.mark = items_.mark(item),
                          .interest = item,
                          .file = item.object->file,
                          .fd = item.fd,
                          .state = item.state,
                          .told_kind = item.told_kind,
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
  once_ = header.once;
  once_outdated_.store(header.edges != 0, std::memory_order_relaxed);
  items_.take_marks(header.mark, process_id());
  used_.store(header.count != 0, std::memory_order_release);
  for (const Record* record = records; record != records + header.count; ++record) {
    // What was closed on exec has left the set by itself, unless a copy is open.
    Reference object;
    if (record->state != Item::State::kOrphan) object = of_number(record->fd, record->file);
    const int copy = object || record->state == Item::State::kRemoved ? -1 : copy_of(record->file);
    if (copy >= 0) object = find(copy);
    if (!object || (copy < 0 && items_.of_number(record->fd) != nullptr)) continue;
    Item* item = items_.add_marked(record->fd, object, record->mark, copy < 0);
    if (item == nullptr) continue;
    for (std::vector<Item*>* list : {&hot_, &orphans_, &waiting_}) list->reserve(items_.room());
    static_cast<posix::EpollInterest&>(*item) = record->interest;
    item->state = copy < 0 ? record->state : Item::State::kOrphan;
    if (copy >= 0) {
      item->alive = copy;
      orphans_.push_back(item);
    }
    item->told_kind = record->told_kind;
    item->muted = record->muted;
    if (object.is(Kind::kEpoll)) has_sets_.store(true, std::memory_order_relaxed);
    if (object.is(Kind::kSocket)) has_sockets_.store(true, std::memory_order_relaxed);
    if (item->told_kind != object.kind()) decided(*item);
    if (item->state != Item::State::kRemoved) heat(*item);
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
  if (object.is(Kind::kEpoll) && header.magic == kEpollMagic && header.version == kMemoryVersion &&
      header.count == (bytes - sizeof(Header)) / sizeof(Record))
    object->set->learn(memory);
  munmap(memory, bytes);
}

}  // namespace leat::preload
