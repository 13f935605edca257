#include "preload/listener.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "preload/configuration.h"
#include "preload/hidden.h"
#include "preload/marks.h"
#include "preload/offer.h"
#include "preload/real.h"
#include "preload/rings.h"
#include "preload/socket_facts.h"
#include "preload/undisturbed.h"

namespace leat::preload {
namespace {

// A listener that opens with a smaller window makes the connector's kernel cut the size that tells.
constexpr int kLeastReceiveBuffer = 131'072;

constexpr int kMeetingType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

void mark_listener(int fd, const Object& listener) {
  set_option(fd, IPPROTO_TCP, TCP_SAVE_SYN, 1);
  set_option(fd, IPPROTO_TCP, TCP_MAXSEG, listener_size(listener.code));
}

// Any code will do: two listeners at one port only must not have the same.
unsigned any_code() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<unsigned>(now.tv_nsec / 64 + getpid() * 37) % kCodes;
}

// Binds it to a place of the listener, which is marked with that place's code, or says that there
// is none.
bool bind_somewhere(int fd, int meeting, Object& listener) {
  for (unsigned attempt = 0; is_in_folder(listener.code) && attempt < kFolderCodes; ++attempt) {
    const Opened opened = bind_in_folder(meeting, fd, listener.port, listener.code);
    if (opened == Opened::kBound) return true;
    if (opened == Opened::kUnusable) break;
    listener.code = kFirstFolderCode + (listener.code + 1 - kFirstFolderCode) % kFolderCodes;
    mark_listener(fd, listener);
  }
  if (is_in_folder(listener.code)) {
    // As without a folder.
    listener.code = any_code();
    mark_listener(fd, listener);
  }
  for (unsigned attempt = 0; attempt < kCodes; ++attempt) {
    if (bind_to_meeting_place(meeting, listener.port, listener.code) == 0) return true;
    listener.code = (listener.code + 1) % kCodes;
    mark_listener(fd, listener);
  }
  return false;
}

// Makes `meeting` the place for offers of a listener whose port is known, and marks it so. False:
// there is no free place, and it is closed.
bool open_meeting_place(int fd, int meeting, Object& listener, int backlog) {
  if (!bind_somewhere(fd, meeting, listener) ||
      real().listen(meeting, backlog < 128 ? 128 : backlog) != 0) {
    real().close(meeting);
    return false;
  }
  const int hidden = hide(meeting);
  if (hidden >= 0) listener.meeting_fd = hidden;
  return hidden >= 0;
}

}  // namespace

bool before_listen(int fd, Reference& socket) noexcept {
  const Undisturbed undisturbed;
  if (socket.is(Kind::kListener)) {
    // If it was shut down meanwhile, the kernel has forgotten the mark.
    mark_listener(fd, *socket);
    return false;
  }
  if (!is_tcp(fd)) return false;
  if (option(fd, SOL_SOCKET, SO_RCVBUF) < kLeastReceiveBuffer || too_few_numbers() || has_ring())
    return false;
  if (!socket) socket = add(fd, Kind::kSocket);
  if (!socket) return false;
  socket->code = any_code();
  if (meeting_folder() != nullptr) socket->code = kFirstFolderCode + socket->code % kFolderCodes;
  keep_deferred(fd, *socket);
  socket->max_segment.store(option(fd, IPPROTO_TCP, TCP_MAXSEG), std::memory_order_relaxed);
  mark_listener(fd, *socket);
  return true;
}

void after_listen(int fd, Reference& socket, int backlog) noexcept {
  const Undisturbed undisturbed;
  if (!socket.is(Kind::kSocket)) return;
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size);
  int meeting = -1;
  if (matches(storage)) meeting = real().socket(AF_UNIX, kMeetingType, 0);
  socket->port = Address::from(storage).port;
  if (meeting >= 0 && open_meeting_place(fd, meeting, *socket, backlog)) {
    socket->owner = geteuid();
    keep_spare_numbers();
    socket->kind.store(Kind::kListener, std::memory_order_release);
    return;
  }
  set_option(fd, IPPROTO_TCP, TCP_MAXSEG, socket->max_segment.load(std::memory_order_relaxed));
  if (const int deferred = socket->deferred.load(std::memory_order_relaxed); deferred > 0)
    set_option(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, deferred);
  forget(fd);
  socket = {};
}

void listens_again(int fd, Object& listener, int backlog) noexcept {
  const Undisturbed undisturbed;
  const std::uint16_t port = local_address(fd).port;
  if (port == 0 || port == listener.port) return;
  const int meeting = real().socket(AF_UNIX, kMeetingType, 0);
  const int before = listener.meeting_fd;
  listener.port = port;
  if (meeting >= 0 && open_meeting_place(fd, meeting, listener, backlog)) close_hidden(before);
}

void keep_deferred(int fd, Object& listener) noexcept {
  const int deferred = option(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT);
  listener.deferred.store(std::max(deferred, 0), std::memory_order_relaxed);
  if (deferred > 0) set_option(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, 0);
}

void find_listener(int fd) noexcept {
  const Undisturbed undisturbed;
  if (listener_code(option(fd, IPPROTO_TCP, TCP_MAXSEG)) < 0) return;
  for (int known = 0; known <= highest_known(); ++known) {
    const Reference object = find(known);
    if (!object.is(Kind::kListener) || !is_current(fd, *object)) continue;
    add_duplicate(known, fd);
    return;
  }
}

bool is_listener_of(int fd, unsigned port, unsigned code) noexcept {
  return is_tcp(fd) && option(fd, SOL_SOCKET, SO_ACCEPTCONN) > 0 &&
         local_address(fd).port == port &&
         option(fd, IPPROTO_TCP, TCP_MAXSEG) == listener_size(code);
}

}  // namespace leat::preload
