#include "socket/c/descriptors.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "base/system_error.h"

namespace leat::detail::c {
namespace {

struct Table {
  std::shared_mutex mutex;
  std::unordered_map<int, Described> entries;
};

// Outlives exit handlers.
Table& table() {
  static auto* made = new Table;
  return *made;
}

void put(int number, Described described) {
  const std::unique_lock lock(table().mutex);
  table().entries[number] = std::move(described);
}

}  // namespace

Described find(int number) {
  const std::shared_lock lock(table().mutex);
  const auto found = table().entries.find(number);
  return found == table().entries.end() ? Described{} : found->second;
}

std::shared_ptr<Handle> find_handle(int number) {
  const std::shared_lock lock(table().mutex);
  const auto found = table().entries.find(number);
  return found == table().entries.end() ? nullptr : found->second.handle;
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
    if (closed.handle != nullptr) closed.handle->set_number(another);
    // The kernel too keeps a descriptor in its sets as long as another stands for the same.
    if (last)
      for (const auto& [other, described] : table().entries)
        if (described.epoll != nullptr) described.epoll->forget(*closed.pollable());
  }
  Fd(number).reset();
  if (last && closed.handle != nullptr && closed.handle->made_here())
    closed.handle->before_last_close();
  return 0;
}

}  // namespace leat::detail::c
