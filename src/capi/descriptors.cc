#include "capi/descriptors.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "base/fork.h"
#include "base/system_error.h"

namespace leat::detail::c {
namespace {

struct Table {
  std::shared_mutex mutex;
  std::unordered_map<int, Described> entries;
};

// Outlives exit handlers. A forked child finds it whole, whatever its parent's threads were doing;
// it makes the lock again, because its owner was the parent.
Table& table() {
  static Table* const made = [] {
    // Before: a fork takes locks in reverse order of their registration, and the order is the
    // table's, a handle's, that of what children do not inherit.
    ForkGeneration::start();
    pthread_atfork([] { table().mutex.lock(); }, [] { table().mutex.unlock(); },
                   [] { new (&table().mutex) std::shared_mutex; });
    return new Table;
  }();
  return *made;
}

void put(int number, Described described) {
  const std::unique_lock lock(table().mutex);
  table().entries[number] = std::move(described);
}

void check_made_here(const Pollable& object) {
  if (!object.made_here())
    throw Error(ErrorCode::kClosed,
                "this handle belongs to the process that this one was forked from",
                "Connect after fork(); here it can only be closed.", EOPNOTSUPP);
}

}  // namespace

Described find(int number) {
  const std::shared_lock lock(table().mutex);
  const auto found = table().entries.find(number);
  if (found == table().entries.end()) return {};
  check_made_here(*found->second.pollable());
  return found->second;
}

std::shared_ptr<Handle> find_handle(int number) {
  const std::shared_lock lock(table().mutex);
  const auto found = table().entries.find(number);
  if (found == table().entries.end() || found->second.handle == nullptr) return nullptr;
  check_made_here(*found->second.handle);
  return found->second.handle;
}

NewDescriptor::NewDescriptor(bool close_on_exec)
    : set_(check(epoll_create1(close_on_exec ? EPOLL_CLOEXEC : 0), "epoll_create1")) {}

int NewDescriptor::become_handle(Fd socket, bool nonblocking,
                                 const std::function<void(Handle&)>& prepare) {
  auto handle = std::make_shared<Handle>(std::move(socket), set_.get(), nonblocking);
  if (prepare) prepare(*handle);
  put(set_.get(), {std::move(handle), nullptr});
  return set_.release();
}

int NewDescriptor::become_epoll() {
  put(set_.get(), {nullptr, std::make_shared<EpollSet>(set_.get())});
  return set_.release();
}

int duplicate(int number, int least, bool close_on_exec) {
  const Described described = find(number);
  Fd copy(fcntl(number, close_on_exec ? F_DUPFD_CLOEXEC : F_DUPFD, least));
  if (!copy) return -errno;
  put(copy.get(), described);
  return copy.release();
}

int close_described(int number) {
  Described closed;
  bool last = true;
  {
    const std::unique_lock lock(table().mutex);
    const auto found = table().entries.find(number);
    if (found == table().entries.end()) return -EBADF;
    closed = std::move(found->second);
    table().entries.erase(found);
    int another = -1;
    for (const auto& [other, described] : table().entries)
      if (described.handle == closed.handle && described.epoll == closed.epoll) another = other;
    last = another < 0;
    // In a forked child a thread of the parent's may hold their locks for ever.
    const bool ours = closed.pollable()->made_here();
    if (ours && closed.handle != nullptr) closed.handle->set_number(another);
    // The kernel too keeps a descriptor in its sets as long as another stands for the same.
    if (ours && last)
      for (const auto& [other, described] : table().entries)
        if (described.epoll != nullptr) described.epoll->forget(*closed.pollable());
  }
  Fd(number).reset();
  if (last && closed.handle != nullptr && closed.handle->made_here())
    closed.handle->before_last_close();
  return 0;
}

}  // namespace leat::detail::c
