// What the connecting side leaves for the acceptor, and where: see meeting.h.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "preload/address.h"

namespace leat::preload {

struct Offer {
  std::uint32_t magic;
  std::uint32_t refused;  // 1: stays with TCP, no memory
  std::uint32_t hops;     // how often it was given back
  std::uint32_t copy;     // 1: perhaps nobody waits for it
  Address connector;
  Address acceptor;
};

// Binds a unix socket to the place where offers for a listener (port and code) are taken; 0 or -1.
int bind_to_meeting_place(int fd, std::uint16_t port, unsigned code) noexcept;
int connect_to_meeting_place(int fd, std::uint16_t port, unsigned code) noexcept;
// What the name of such a place says. False: it is not the name of a place.
bool parse_meeting_place(const sockaddr_un& place, socklen_t bytes, unsigned& port,
                         unsigned& code) noexcept;
// A socket to leave offers by, or -1.
int unix_socket() noexcept;

// `memfd` may be -1.
bool send_offer(int fd, const Offer& offer, int memfd) noexcept;
// Leaves a copy of an offer that was taken, for another process that has the same accepted socket
// since a fork. `meeting_fd` is the listener's place.
void leave_copy(const Offer& offer, int memfd, int meeting_fd) noexcept;
// The offer that waits in an accepted unix connection. False: none that can be used.
bool receive_offer(int fd, Offer& offer, int& memfd) noexcept;

// Offers that other acceptors wait for, taken out of the queue on the way to our own. All are given
// back at once, because acceptors that gave back one each in turn could go round for ever.
class HeldOffers {
 public:
  // From the queue of `meeting_fd`.
  explicit HeldOffers(int meeting_fd) noexcept : meeting_fd_(meeting_fd) {}
  ~HeldOffers() { give_back(); }
  HeldOffers(const HeldOffers&) = delete;
  HeldOffers& operator=(const HeldOffers&) = delete;

  bool empty() const noexcept { return count_ == 0; }
  void keep(const Offer& offer, int memfd) noexcept;  // takes the memfd over
  void give_back() noexcept;

 private:
  const int meeting_fd_;
  std::size_t count_ = 0;
  std::array<Offer, 32> offers_;
  std::array<int, 32> memfds_;
};

}  // namespace leat::preload
