#include "preload/descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <new>
#include <utility>

#include "base/spin_lock.h"
#include "preload/epoll_set.h"
#include "preload/kept_memory.h"
#include "preload/real.h"
#include "preload/short_connections.h"

namespace leat::preload {
namespace {

std::atomic<int> highest{-1};
detail::SpinLock pool_lock;
Object* free_objects = nullptr;

Object* new_object() {
  const std::lock_guard guard(pool_lock);
  if (free_objects == nullptr) return new (std::nothrow) Object;
  Object* object = free_objects;
  free_objects = object->next_free;
  return object;
}

void release(Object* object) {
  // Acquire-release: the last one sees what all others did.
  if (object->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  switch (object->kind.load(std::memory_order_relaxed)) {
    case Kind::kConnection:
      if (object->awaited_at != nullptr) release(std::exchange(object->awaited_at, nullptr));
      note_ended(*object);
      if (!keep_memory(*object)) {
        if (object->connection.memfd() >= 0) close_hidden(object->connection.memfd());
        object->connection.unmap();
      }
      object->connection.detach();
      object->made_at = 0;
      break;
    case Kind::kListener:
    case Kind::kSocket:
      if (object->meeting_fd >= 0) close_hidden(object->meeting_fd);
      object->meeting_fd = -1;
      if (object->awaited_at != nullptr) release(std::exchange(object->awaited_at, nullptr));
      break;
    case Kind::kEpoll:
      std::exchange(object->set, nullptr)->retire();
      break;
    default:
      break;
  }
  object->kind.store(Kind::kFree, std::memory_order_relaxed);
  object->connecting.store(false, std::memory_order_relaxed);
  object->receive_buffer.store(0, std::memory_order_relaxed);
  object->deferred.store(0, std::memory_order_relaxed);
  object->port = 0;
  const std::lock_guard guard(pool_lock);
  object->next_free = free_objects;
  free_objects = object;
}

void replace(int fd, Object* object) {
  // Release: who finds the object sees its fields.
  Object* old = descriptor_entry(fd).exchange(object, std::memory_order_acq_rel);
  if (old == nullptr) return;
  old->numbers.fetch_sub(1, std::memory_order_relaxed);
  release(old);
}

void set(int fd, Object* object) {
  int seen = highest.load(std::memory_order_relaxed);
  while (fd > seen && !highest.compare_exchange_weak(seen, fd, std::memory_order_relaxed)) {
  }
  object->numbers.fetch_add(1, std::memory_order_relaxed);
  replace(fd, object);
}

// One for the meeting, one for the memory, one to move that out of the program's sight.
constexpr std::size_t kSpareNumbers = 3;

struct Spare {
  detail::SpinLock lock;
  int descriptors[kSpareNumbers] = {-1, -1, -1};
  unsigned users = 0;
  rlim_t limit = 0;  // the program's, while it is raised
};
constinit Spare spare;

bool fill_spare() {
  bool full = true;
  for (int& fd : spare.descriptors) {
    if (fd >= 0) continue;
    const long number = system_call(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    fd = number < 0 ? -1 : hide(static_cast<int>(number));
    full &= fd >= 0;
  }
  return full;
}

}  // namespace

Object* descriptor_table[kMostDescriptors] = {};

Reference::~Reference() {
  if (object_ != nullptr) release(object_);
}

Reference acquire(int fd) noexcept {
  for (;;) {
    Object* object = descriptor_entry(fd).load(std::memory_order_acquire);
    if (object == nullptr) return {};
    std::uint32_t count = object->references.load(std::memory_order_relaxed);
    while (count != 0 &&
           !object->references.compare_exchange_weak(count, count + 1, std::memory_order_acq_rel)) {
    }
    if (count == 0) continue;  // just being freed; the table no longer has it
    Reference reference(object);
    if (descriptor_entry(fd).load(std::memory_order_acquire) == object) return reference;
  }
}

Reference add(int fd, Kind kind) noexcept {
  if (fd < 0 || fd >= kMostDescriptors) return {};
  Object* object = new_object();
  if (object == nullptr) return {};
  object->references.store(2, std::memory_order_relaxed);  // the table's and the caller's
  object->kind.store(kind, std::memory_order_release);
  set(fd, object);
  return Reference(object);
}

void add_duplicate(int from, int to) noexcept {
  if (from == to || to < 0 || to >= kMostDescriptors) return;
  Reference object = find(from);
  if (!object) {
    forget(to);
    return;
  }
  object->references.fetch_add(1, std::memory_order_relaxed);  // we hold one
  set(to, object.get());
}

void forget(int fd) noexcept {
  if (fd < 0 || fd >= kMostDescriptors) return;
  if (descriptor_entry(fd).load(std::memory_order_relaxed) == nullptr) return;
  replace(fd, nullptr);
}

int another(const Object& object, int fd) noexcept {
  const bool alone = descriptor_entry(fd).load(std::memory_order_relaxed) == &object;
  if (object.numbers.load(std::memory_order_relaxed) <= (alone ? 1 : 0)) return -1;
  for (int other = 0; other <= highest_known(); ++other) {
    if (other != fd && descriptor_entry(other).load(std::memory_order_acquire) == &object)
      return other;
  }
  return -1;
}

int hide(int fd) noexcept {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  // The upper half of the numbers, so that the program's own stay small, as without us; not from a
  // round number, which a program may take for one that nobody has.
  const rlim_t most = limit.rlim_cur < kMostDescriptors ? limit.rlim_cur : kMostDescriptors;
  const long high = system_call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, static_cast<long>(most / 2 + 7));
  system_call(SYS_close, fd);
  if (high < 0) return -1;
  add(static_cast<int>(high), Kind::kOwn);
  return static_cast<int>(high);
}

bool number_is_free(int fd) noexcept {
  const long copy = system_call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0L);
  if (copy < 0) return errno != EMFILE;
  system_call(SYS_close, copy);
  return true;
}

bool keep_spare_numbers() noexcept {
  const std::lock_guard guard(spare.lock);
  if (spare.users != 0 || fill_spare()) return true;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur < limit.rlim_max;
}

SpareNumbers::SpareNumbers() noexcept {
  const std::lock_guard guard(spare.lock);
  if (spare.users++ != 0) return;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < limit.rlim_max) {
    spare.limit = std::exchange(limit.rlim_cur, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
    return;
  }
  for (int& fd : spare.descriptors) {
    if (fd >= 0) close_hidden(std::exchange(fd, -1));
  }
}

SpareNumbers::~SpareNumbers() {
  const std::lock_guard guard(spare.lock);
  if (--spare.users != 0) return;
  if (spare.limit == 0) {
    fill_spare();
    return;
  }
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::exchange(spare.limit, 0);
  setrlimit(RLIMIT_NOFILE, &limit);
}

void close_hidden(int fd) noexcept {
  forget(fd);
  system_call(SYS_close, fd);
}

bool is_hidden(int fd) noexcept { return find(fd).is(Kind::kOwn); }

void forget_pool_lock() noexcept {
  pool_lock.unlock();
  spare.lock.unlock();
}

int highest_known() noexcept { return highest.load(std::memory_order_relaxed); }

}  // namespace leat::preload
