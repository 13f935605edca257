#include "preload/descriptors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <utility>

#include "preload/epoll_set.h"
#include "preload/escapes.h"
#include "preload/hidden.h"
#include "preload/kept_memory.h"
#include "preload/pool.h"
#include "preload/real.h"
#include "preload/short_connections.h"

namespace leat::preload {
namespace {

std::atomic<int> highest{-1};

// Never given back: a look at an object that is just being freed is harmless.
constinit Pool<Object> pool;

// The number of the kernel's file, which no other has while this one lives; 0: there is none.
std::uint64_t file_of(int fd) noexcept {
  const int kept_errno = errno;
  struct stat status {};
  const bool good = system_call(SYS_fstat, fd, &status) == 0;
  errno = kept_errno;
  if (!good) return 0;
  // Of other files the device counts too. Inverted, such a number is not that of a socket.
  return S_ISSOCK(status.st_mode) ? status.st_ino : ~(status.st_ino ^ (status.st_dev << 32));
}

void release(Object* object) {
  // Acquire-release: the last one sees what all others did.
  if (object->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  switch (object->kind.load(std::memory_order_relaxed)) {
    case Kind::kConnection:
      if (object->awaited_at != nullptr) release(std::exchange(object->awaited_at, nullptr));
      object->connection.note_closed();
      note_ended(*object);
      if (!keep_memory(*object)) {
        if (object->connection.memfd() >= 0) close_hidden(object->connection.memfd());
        object->connection.unmap();
      }
      object->connection.detach(object->made_at != memory_generation());
      object->made_at = 0;
      break;
    case Kind::kListener:
    case Kind::kSocket:
      if (object->meeting_fd >= 0) close_hidden(object->meeting_fd);
      object->meeting_fd = -1;
      if (object->awaited_at != nullptr) release(std::exchange(object->awaited_at, nullptr));
      object->connection.detach(true);
      break;
    case Kind::kEpoll:
      std::exchange(object->set, nullptr)->retire();
      break;
    default:
      break;
  }
  object->kind.store(Kind::kFree, std::memory_order_relaxed);
  object->connecting.store(false, std::memory_order_relaxed);
  object->in_connect.store(false, std::memory_order_relaxed);
  object->receive_buffer.store(0, std::memory_order_relaxed);
  object->deferred.store(0, std::memory_order_relaxed);
  object->port = 0;
  object->file = 0;
  object->deciding.store(0, std::memory_order_relaxed);
  object->forked.store(false, std::memory_order_relaxed);
  object->shut.store(false, std::memory_order_relaxed);
  object->due.store(0, std::memory_order_relaxed);
  pool.give(object);
}

void replace(int fd, Object* object) {
  // Release: a thread that finds the object sees its fields.
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
  Object* object = pool.take();
  if (object == nullptr) return {};
  object->file = file_of(fd);
  object->references.store(2, std::memory_order_relaxed);  // the table's and the caller's
  object->kind.store(kind, std::memory_order_release);
  set(fd, object);
  return Reference(object);
}

bool is_current(int fd, const Object& object) noexcept { return file_of(fd) == object.file; }

Reference find_current(int fd) noexcept {
  Reference object = find(fd);
  if (!object || object.is(Kind::kOwn) || is_current(fd, *object)) [[likely]]
    return object;
  forget_lost(fd, *object);
  return {};
}

bool forget_lost(int fd, const Object& object) noexcept {
  // Relaxed: close() forgets a number before the kernel does, and we come after the kernel's word.
  if (descriptor_entry(fd).load(std::memory_order_relaxed) != &object) return false;
  report_reuse(fd);
  forget(fd);
  EpollSet::note_missed();
  return true;
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
  const bool alone = fd >= 0 && descriptor_entry(fd).load(std::memory_order_relaxed) == &object;
  if (object.numbers.load(std::memory_order_relaxed) <= (alone ? 1 : 0)) return -1;
  for (int other = 0; other <= highest_known(); ++other) {
    if (other != fd && descriptor_entry(other).load(std::memory_order_acquire) == &object)
      return other;
  }
  return -1;
}

int highest_known() noexcept { return highest.load(std::memory_order_relaxed); }

}  // namespace leat::preload
