// The table of the descriptors that stand for handles and epoll sets of leat/c.h.
#pragma once

#include <functional>
#include <memory>

#include "capi/call.h"
#include "capi/epoll_set.h"
#include "capi/handle.h"

namespace leat::detail::c {

// What a descriptor stands for; neither: it is the kernel's alone.
struct Described {
  std::shared_ptr<Handle> handle;
  std::shared_ptr<EpollSet> epoll;

  explicit operator bool() const { return handle != nullptr || epoll != nullptr; }
  std::shared_ptr<Pollable> pollable() const {
    return handle != nullptr ? std::shared_ptr<Pollable>(handle) : epoll;
  }
};

// Any thread. The finder keeps what it found alive, as the kernel does with files in use. Throw
// with EOPNOTSUPP in a forked child of the process that made it.
Described find(int number);
std::shared_ptr<Handle> find_handle(int number);

// A descriptor that is about to stand for something; closed if it does not come to that.
class NewDescriptor {
 public:
  explicit NewDescriptor(bool close_on_exec);

  // Both return the descriptor. `prepare` is called before anybody can find the handle.
  int become_handle(Fd socket, bool nonblocking, const std::function<void(Handle&)>& prepare = {});
  int become_epoll();

 private:
  Fd set_;
};

// One more descriptor, at least `least`, for the same; -errno.
int duplicate(int number, int least, bool close_on_exec);
// -EBADF unless the descriptor is in the table. Also in a forked child.
int close_described(int number);

// What `body` gives for a handle, and `other` for a descriptor of the kernel's alone.
template <typename Body, typename Other>
int with_handle(const char* name, int number, Body&& body, Other&& other) {
  return static_cast<int>(called(name, [&]() -> long {
    const auto handle = find_handle(number);
    if (handle == nullptr) return result_of(other());
    return body(*handle);
  }));
}

}  // namespace leat::detail::c
