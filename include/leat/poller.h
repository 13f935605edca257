// The event loop of a server: one thread waits for many channels, listeners and descriptors.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "leat/channel.h"
#include "leat/export.h"
#include "leat/held.h"
#include "leat/listener.h"

namespace leat {

namespace detail {
class PollerCore;
}  // namespace detail

// What a caller waits for, and what has come; a set of flags.
enum class Events : unsigned {
  kNone = 0,  // watched, but nothing is reported until modify()
  // A message or the end waits: Channel::try_receive() in the event's context returns a value or
  // throws. Of a listener: try_accept() may find a connection. Of a descriptor: EPOLLIN.
  kReadable = 1,
  // Channel::try_send() may succeed. While the last one that was refused would be refused again,
  // nothing is reported. Of a descriptor: EPOLLOUT.
  kRoom = 2,
  // Wanted together with others: after one report the interest is kNone.
  kOneShot = 4,
};
constexpr Events operator|(Events a, Events b) {
  return static_cast<Events>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr Events operator&(Events a, Events b) {
  return static_cast<Events>(static_cast<unsigned>(a) & static_cast<unsigned>(b));
}
constexpr Events& operator|=(Events& a, Events b) { return a = a | b; }
// Whether one of `wanted` is among `events`.
constexpr bool has(Events events, Events wanted) { return (events & wanted) != Events::kNone; }

struct Event {
  std::uint64_t token = 0;  // as given to add()
  Events events = Events::kNone;
  unsigned context = 0;  // kReadable of a channel: the protocol context to receive from
};

// What a poller has done, for tests and for people.
struct PollerStats {
  std::uint64_t waits = 0;      // calls of wait()
  std::uint64_t events = 0;     // that they returned
  std::uint64_t looks = 0;      // at one channel each
  std::uint64_t arms = 0;       // channels that were armed, to be left alone until they notify
  std::uint64_t notices = 0;    // events of the kernel
  std::uint64_t set_looks = 0;  // at the kernel's set, without sleeping
  std::uint64_t sleeps = 0;     // in the kernel
};

// Tells which of many channels, listeners and descriptors are ready. The channels may be of any mix
// of devices and transports.
//
// Level-triggered: what is ready and not taken is reported again by the next wait(). Channels that
// were active lately are looked at in turn; all others are armed and cost nothing until they notify
// the poller, so wait() costs as much as is ready, not as much as there is. Each wait() reports a
// channel once at most, and goes on where the last one stopped: a peer that floods its channel does
// not keep others from their turn, provided that the caller takes a bounded number of messages for
// each event.
//
// The end of a connection, in order or not, is kReadable for good: try_receive() tells it. Then
// destroy or remove the channel, or modify() it to kRoom if it still sends.
//
// Owner: the caller that constructed it; move-only. What is added stays the caller's. A channel or
// listener that is destroyed leaves by itself; moving the object changes nothing. A channel is in
// one poller at most; remove() it to add it to another. Events that wait() has returned are not
// taken back: after a removal the caller skips what is left of that channel in the same array.
// Threads: one at a time, which is also the one that uses the receive side of its channels (with
// kRoom the send side too) and that destroys them. Another thread may send on a channel without
// kRoom, and may close() it, which is kReadable. To wake wait(), add an eventfd.
// Processes: as for Channel. In a child of fork() every call throws kClosed, and destruction
// changes nothing.
// Errors: leat::Error. kClosed after a move or fork; kInvalidArgument for what is added twice or is
// not there; kResource if descriptors, memory or watches run out. A call that throws has changed
// nothing.
class LEAT_EXPORT Poller {
 public:
  Poller();
  Poller(Poller&&) noexcept;
  Poller& operator=(Poller&&) noexcept;
  ~Poller();

  // Watches the channel from now on. Throws kClosed if it is closed, kInvalidArgument if it is in a
  // poller.
  void add(Channel& channel, Events events, std::uint64_t token);
  // Watches for connections (kReadable). A closed listener is kReadable: try_accept() throws.
  void add(Listener& listener, std::uint64_t token);
  // Watches any descriptor that epoll takes. remove() it before it is closed. Its errors and hangup
  // are reported as each of the events that are wanted.
  void add(int descriptor, Events events, std::uint64_t token);

  // Replaces what is wanted; the token stays. Ends a one-shot's silence.
  void modify(Channel& channel, Events events);
  void modify(int descriptor, Events events);

  void remove(Channel& channel);
  void remove(Listener& listener);
  void remove(int descriptor);

  // Stores what is ready in `events`, which must not be empty, and returns how many it stored. If
  // nothing is ready, blocks for `timeout` (negative: without limit), and returns 0 if nothing
  // came. Zero: does not block. Spins for the largest option `spin_us` of the channels that were
  // active lately, as long as spinning pays, and sleeps in the kernel thereafter. A signal does not
  // end it; use a signalfd. A sleep ends up to a millisecond late.
  std::size_t wait(std::span<Event> events,
                   std::chrono::nanoseconds timeout = std::chrono::nanoseconds(-1));

  // A descriptor for another event loop (libuv, Boost.Asio, GLib), or for another Poller: readable,
  // level-triggered, while wait(events, 0) may return something. The loop calls wait(events, 0)
  // whenever it is readable; one call each time is enough, and one that returns 0 leaves it
  // unreadable until something comes. So each such call arms what it does not find ready, as a
  // sleep does, from the first call of fd() on. The poller owns it.
  int fd();

  PollerStats stats() const;

 private:
  detail::Held<std::unique_ptr<detail::PollerCore>> core_;
};

}  // namespace leat
