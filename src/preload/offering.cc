#include "preload/offering.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "preload/configuration.h"
#include "preload/hidden.h"
#include "preload/kept_memory.h"
#include "preload/meeting.h"
#include "preload/meeting_folder.h"
#include "preload/meeting_policy.h"
#include "preload/offer.h"
#include "preload/real.h"
#include "preload/shared_memory.h"
#include "preload/socket_facts.h"

namespace leat::preload {
namespace {

using Clock = std::chrono::steady_clock;

// A listener in the middle of its listen() has its mark before its meeting place.
constexpr auto kListenPatience = std::chrono::milliseconds(20);
// The time in which a full queue must get room, however many signals come.
constexpr auto kQueuePatience = std::chrono::seconds(2);

// Why this connection cannot be carried, or null.
const char* unsuitable(int fd) {
  if (option(fd, SOL_SOCKET, SO_ZEROCOPY) > 0) return "SO_ZEROCOPY is set";
  if (option(fd, SOL_SOCKET, SO_OOBINLINE) > 0) return "SO_OOBINLINE is set";
  if (option(fd, SOL_SOCKET, SO_RCVLOWAT) > 1) return "SO_RCVLOWAT is set";
  return nullptr;
}

// Makes memory for the connection to `peer`; -1 and why not.
int prepare_memory(Object& object, const Offer& offer, uid_t peer, const char*& why) {
  int memfd = -1;
  SharedMemory* memory =
      object.in_folder.load(std::memory_order_relaxed) ? nullptr : take_kept_memory(peer, memfd);
  if (memory == nullptr) memory = new_memory(memfd);
  if (memory == nullptr) {
    why = "shared memory could not be created";
    return -1;
  }
  memory->begin(offer.connector, offer.acceptor);
  if (!object.connection.attach(memory, 0, -1)) {
    munmap(memory, kMemoryBytes);
    is_hidden(memfd) ? close_hidden(memfd) : static_cast<void>(real().close(memfd));
    why = "out of memory";
    return -1;
  }
  object.owner = peer;
  object.made_at = memory_generation();
  return memfd;
}

// False: with ECONNREFUSED there is no such place; with other errors it accepts no connection.
bool reach_meeting_place(int place, const FolderPlaces& places, std::uint16_t port, unsigned code) {
  const auto start = Clock::now();
  const auto reach = [&] {
    return is_in_folder(code) ? connect_in_folder(place, port, places.with(code))
                              : connect_to_meeting_place(place, port, code);
  };
  while (reach() != 0) {
    const int error = errno;
    const Clock::duration patience = error == ECONNREFUSED ? kListenPatience : kQueuePatience;
    if ((error != ECONNREFUSED && error != EINTR) || Clock::now() - start > patience) {
      errno = error;
      return false;
    }
    if (error == ECONNREFUSED) usleep(1000);
  }
  return true;
}

// One attempt. `memfd` is the connection's memory, made once it is known who gets it.
Offered deliver(int place, Offer offer, Object& object, int& memfd, unsigned code,
                const char*& why) {
  if (!reach_meeting_place(place, object.places, offer.acceptor.port, code)) {
    const bool gone = errno == ECONNREFUSED;
    why = gone              ? "the listener has no meeting place any more"
          : errno != EAGAIN ? "the listener's meeting place cannot be reached"
                            : "the listener's queue of offers is full";
    // A waiter for an offer keeps the place.
    return gone ? Offered::kNothing : Offered::kUndelivered;
  }
  ucred listener{};
  socklen_t bytes = sizeof(listener);
  real().getsockopt(place, SOL_SOCKET, SO_PEERCRED, &listener, &bytes);
  if (is_in_folder(code)) {
    why = why_not_meet(meeting_folder(), this_party(), party_at(place), offer.acceptor.port);
  } else if (!is_trusted(geteuid(), listener.uid)) {
    why = listener.uid == geteuid() ? "this user namespace does not map our user"
                                    : "the listener belongs to another user";
    // The acceptor sees that from the SYN, and waits for no word of ours.
    if (user_code(listener.uid) != user_code(geteuid())) return Offered::kNothing;
  }
  if (why == nullptr) memfd = prepare_memory(object, offer, listener.uid, why);
  const bool good = memfd >= 0 && object.owner == listener.uid;
  offer.refused = good ? 0 : 1;
  if (send_offer(place, offer, good ? memfd : -1))
    return good ? Offered::kMemory : Offered::kNothing;
  why = "the offer cannot be sent";
  return Offered::kUndelivered;
}

}  // namespace

Offered offer_memory(int fd, Object& object, int place, unsigned code, const char*& why) noexcept {
  const Offer offer{kMemoryMagic, 0, 0, 0, local_address(fd), peer_address(fd)};
  why = unsuitable(fd);
  int memfd = -1;
  Offered result = deliver(place, offer, object, memfd, code, why);
  if (result == Offered::kUndelivered && (errno == EPIPE || errno == ECONNRESET)) {
    // The acceptor has left, or no longer waits for this offer.
    const int again = unix_socket();
    if (again >= 0) {
      result = deliver(again, offer, object, memfd, code, why);
      real().close(again);
    }
  }
  if (memfd < 0) return result;
  const int hidden = is_hidden(memfd) ? memfd : hide(memfd);
  object.connection.keep_open(hidden);
  if (result == Offered::kMemory) return result;
  if (hidden >= 0) close_hidden(hidden);
  object.connection.unmap();
  object.connection.detach(false);
  object.made_at = 0;
  return result;
}

void refuse_in_folder(int fd, const FolderPlaces& places) noexcept {
  const Offer offer{kMemoryMagic, 1, 0, 0, local_address(fd), peer_address(fd)};
  for (std::size_t i = 0; i < places.count; ++i) {
    const int place = unix_socket();
    if (place >= 0 && connect_in_folder(place, offer.acceptor.port, places.list[i]) == 0)
      send_offer(place, offer, -1);
    if (place >= 0) real().close(place);
  }
}

void refuse_everywhere(int fd, unsigned codes) noexcept {
  const Offer offer{kMemoryMagic, 1, 0, 0, local_address(fd), peer_address(fd)};
  int place = unix_socket();
  for (unsigned code = 0; place >= 0 && code < codes; ++code) {
    // As a rule there is no such place, and the socket stays unconnected.
    if (connect_to_meeting_place(place, offer.acceptor.port, code) != 0) continue;
    send_offer(place, offer, -1);
    real().close(place);
    place = unix_socket();
  }
  if (place >= 0) real().close(place);
}

}  // namespace leat::preload
