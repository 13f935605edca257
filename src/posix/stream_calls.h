// The calls that receive and send bytes, as TCP has them.
//
// A template over End, which stands for one call on one end of a connection:
//   std::size_t readable_bytes(), most_unread(): how many bytes lie there, and how many can.
//   bool nothing_follows(): what comes has ended, but for the bytes that lie there.
//   long take(Buffers&, bool peek), put(Buffers&): how many bytes moved, perhaps none; or -errno.
//   int receive_state(bool begun), send_state(bool begun): as TcpState. The first asks for the
//     flags, then for bytes, of which it says 0.
//   bool sending_ended(): send_state() does not say 0.
//   bool flushed(): nothing that was put waits for a further call to be sent.
//   void drop(std::size_t bytes): were sent where send_state() is 1.
//   bool blocks(int flags): whether the call may sleep.
//   bool look_closely(): before the call says EAGAIN, or sleeps for nothing; true: look again.
//   int wait_to_receive(std::size_t bytes, bool some), wait_to_send(std::size_t bytes, bool some):
//     sleep until there are so many, or room for them, or part of it; 0: look again, or an errno.
//     Not for a signal whose handler has SA_RESTART, unless the call has `some` bytes already.
// No call throws unless End does.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>

#include "posix/iovecs.h"

namespace leat::posix {

// Bytes, or -errno. A call for no bytes waits until there are some, and takes none.
template <typename End>
long receive(End& end, Buffers to, int flags) {
  if (to.refused() != 0) return to.refused();
  const bool peek = (flags & MSG_PEEK) != 0;
  const bool all = (flags & MSG_WAITALL) != 0;
  const bool nothing = to.left() == 0;
  // Peeking at all of it takes place once all is there: nothing is taken that could be added to.
  std::size_t least = peek && all ? std::clamp<std::size_t>(to.left(), 1, end.most_unread()) : 1;
  long done = 0;
  const auto or_done = [&done](long other) { return done > 0 ? done : other; };
  for (int error = 0;;) {  // the errno that ended a sleep: it is told unless a last look finds some
    if (least > 1 && (error != 0 || end.nothing_follows())) least = 1;
    if (nothing) {
      if (end.readable_bytes() != 0) return 0;
    } else if (least == 1 || end.readable_bytes() >= least) {
      if (to.sound() < to.left() && end.readable_bytes() > to.sound()) return or_done(-EFAULT);
      const long got = end.take(to, peek);
      if (got < 0) return or_done(got);
      done += got;
      if (got > 0 && (peek || !all || to.left() == 0)) return done;
      if (got > 0) continue;
    }
    if (error != 0) return or_done(-error);
    if (const int state = end.receive_state(done > 0); state != 0)
      return or_done(state > 0 ? 0 : state);
    const bool blocks = end.blocks(flags);
    // A call for no bytes must know whether there is an end before it sleeps.
    if (blocks && nothing && end.look_closely()) continue;
    error = blocks ? end.wait_to_receive(least, nothing || done > 0) : EAGAIN;
    // Whatever wakes a call for no bytes ends it, and is left to the next.
    if (blocks && nothing && error != EPIPE &&
        (error != 0 || end.readable_bytes() != 0 || end.nothing_follows()))
      return 0;
    if (error == EAGAIN && end.look_closely() && (least == 1 || end.nothing_follows())) error = 0;
  }
}

// The same. Where it says -EPIPE the thread gets the signal, unless MSG_NOSIGNAL.
template <typename End>
long send(End& end, Buffers from, int flags) {
  if (from.refused() != 0) return from.refused();
  const std::size_t wanted = from.left();
  const auto or_sent = [&](long other) {
    return from.left() < wanted ? static_cast<long>(wanted - from.left()) : other;
  };
  const auto or_broken = [&](long other) {
    const long result = or_sent(other);
    // As the kernel does, to the thread that writes.
    if (result == -EPIPE && (flags & MSG_NOSIGNAL) == 0) pthread_kill(pthread_self(), SIGPIPE);
    return result;
  };
  for (;;) {
    const int state = end.send_state(from.left() < wanted);
    if (state < 0) return or_broken(state);
    if (from.sound() < from.left()) return or_sent(-EFAULT);
    if (state > 0) {
      end.drop(wanted);
      return static_cast<long>(wanted);
    }
    if (const long put = end.put(from); put < 0) return or_sent(put);
    if (from.left() == 0 && (end.flushed() || !end.blocks(flags))) return static_cast<long>(wanted);
    if (end.sending_ended()) continue;
    if (!end.blocks(flags)) return or_sent(-EAGAIN);
    if (const int error = end.wait_to_send(from.left(), from.left() < wanted); error != 0)
      return or_broken(-error);
  }
}

}  // namespace leat::posix
