// Listeners, connections, and what is asked and set of them.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <vector>

#include "author.h"
#include "known_differences.h"
#include "steps.h"

namespace posix_fuzz {
namespace {

int listen_somewhere(Author& author, int who) {
  const int slot = author.free_slot(who);
  const int place = author.below(kPlaces);
  const int family = author.chance(90) ? AF_INET : AF_INET6;
  const Meaning listener = author.make(who, slot, Thing::kSocket);
  listener->family = family;
  author.add(who, "socket", {slot, family, 0, author.mostly_first(kHows, 85)});
  if (author.chance(30)) maybe_add_to_set(author, who, slot);
  author.add(who, "bind", {slot, place, family});
  if (author.chance(10)) maybe_add_to_set(author, who, slot);
  author.add(who, "listen", {slot, 8});
  listener->thing = Thing::kListener;
  listener->place = place;
  author.model().places[static_cast<std::size_t>(place)] = listener;
  return slot;
}

void connect_to(Author& author, int who, int place) {
  const Meaning listener = author.model().places[static_cast<std::size_t>(place)].lock();
  const int slot = author.free_slot(who);
  const int family = listener ? listener->family : AF_INET;
  const bool nonblocking = author.chance(25);
  const Meaning socket = author.make(who, slot, Thing::kSocket);
  socket->family = family;
  socket->nonblocking = nonblocking;
  author.add(who, "socket",
             {slot, family, nonblocking ? SOCK_NONBLOCK : 0, author.mostly_first(kHows, 85)});
  if (author.chance(25)) maybe_add_to_set(author, who, slot);
  author.add(who, "connect", {slot, place, author.by_syscall()});
  if (nonblocking) {
    // Rule late_offer.
    author.add(who, "poll", {slot, kNoSlot, kNoSlot, POLLOUT, 1, author.below(2)});
    if (author.chance(50)) author.add(who, "getsockopt", {slot, word_value(kOptions, "ERROR")});
  }
  if (!listener) return;
  socket->thing = Thing::kStream;
  listener->queued++;
  listener->callers.push_back(socket);
}

void accept_at(Author& author, int who, int slot) {
  const Meaning listener = author.meaning(who, slot);
  const bool comes = listener->queued > 0;
  if (!comes && !listener->nonblocking && !author.may_sleep(who)) return;
  const int accepted = author.free_slot(who);
  const int flags = author.chance(70) ? 0 : author.any_flags(kSocketFlags, 50);
  const int way = flags != 0 ? word_value(kAcceptWays, "accept4") : author.any_word(kAcceptWays);
  author.add(who, "accept", {slot, accepted, flags, way});
  if (!comes) return;
  listener->queued--;
  const Meaning stream = author.make(who, accepted, Thing::kStream);
  stream->nonblocking = (flags & SOCK_NONBLOCK) != 0;
  author.close_on_exec(who, accepted) = (flags & SOCK_CLOEXEC) != 0;
  stream->peer = listener->callers.front();
  if (const Meaning caller = stream->peer.lock()) caller->peer = stream;
  // What the caller has sent meanwhile.
  if (const Meaning caller = stream->peer.lock()) {
    stream->unread = caller->queued;
    caller->queued = 0;
  } else {
    stream->over = true;
  }
  listener->callers.erase(listener->callers.begin());
}

// Rule dissolved_after_the_peer.
bool has_lost_its_peer(const Meaning& one) {
  if (one->thing != Thing::kStream) return false;
  const Meaning peer = one->peer.lock();
  return one->over || !peer || peer->over;
}

}  // namespace

void begin_with_connection(Author& author) {
  const int server = author.below(2);
  const int listener = listen_somewhere(author, server);
  if (author.chance(20)) maybe_add_to_set(author, server, listener);
  connect_to(author, 1 - server, author.meaning(server, listener)->place);
  if (author.chance(95)) accept_at(author, server, listener);
  if (author.chance(25)) {
    connect_to(author, 1 - server, author.meaning(server, listener)->place);
    accept_at(author, server, listener);
  }
}

void connect_one(Author& author, int who) {
  std::vector<int> known;
  for (int i = 0; i < kPlaces; ++i)
    if (const Meaning listener = author.model().places[static_cast<std::size_t>(i)].lock();
        listener && listener->queued < 4)
      known.push_back(i);
  if (known.empty() || author.chance(5)) {
    if (author.chance(20)) connect_to(author, who, author.below(kPlaces));
    return;
  }
  connect_to(author, who,
             known[static_cast<std::size_t>(author.below(static_cast<int>(known.size())))]);
}

void accept_one(Author& author, int who) {
  const int slot = author.slot_where(
      who, [](const Described& one) { return one.thing == Thing::kListener && one.queued > 0; });
  if (slot != kNoSlot) return accept_at(author, who, slot);
  const int other = author.slot_of(who, Thing::kListener);
  if (other != kNoSlot && author.chance(30)) accept_at(author, who, other);
}

void listen_one(Author& author, int who) {
  if (author.chance(70)) {
    listen_somewhere(author, who);
  } else if (const int slot = author.any_slot(who); slot != kNoSlot) {
    author.add(who, "listen", {slot, 8});
  }
}

void shut(Author& author, int who) {
  const int slot = author.chance(90) ? author.slot_of(who, Thing::kStream) : author.any_slot(who);
  if (slot == kNoSlot) return;
  const int how = author.chance(60) ? SHUT_WR : author.below(3);
  author.add(who, "shutdown", {slot, how, author.by_syscall()});
  const Meaning ended = author.meaning(who, slot);
  if (!ended) return;
  if (how != SHUT_RD) {
    if (const Meaning peer = ended->peer.lock()) peer->over = true;
  }
  if (how != SHUT_WR) ended->over = true;
}

void ask(Author& author, int who) {
  const int slot = author.chance(80) ? author.slot_of(who, Thing::kStream) : author.any_slot(who);
  if (slot == kNoSlot) return;
  switch (author.below(7)) {
    case 0:
      return author.add(who, "waiting_bytes", {slot});
    case 1:
      return author.add(who, "getsockname", {slot});
    case 2:
      return author.add(who, "getpeername", {slot});
    case 3:
      return author.add(who, "getsockopt", {slot, word_value(kOptions, "ERROR")});
    case 4:
      return author.add(who, "flags", {slot});
    case 5:
      return author.add(who, "state", {slot});
    default:
      return author.add(who, "getsockopt", {slot, author.any_word(kOptions)});
  }
}

void set_option(Author& author, int who) {
  const int slot = author.any_slot(who);
  if (slot == kNoSlot) return;
  const Meaning at = author.meaning(who, slot);
  switch (author.below(7)) {
    case 6:
      // Rules dissolved_elsewhere, dissolved_after_the_peer.
      if (at &&
          (at->thing == Thing::kListener || author.is_elsewhere(who, at) || has_lost_its_peer(at)))
        return;
      author.add(who, "dissolve", {slot});
      if (at && at->thing == Thing::kStream) {
        at->thing = Thing::kSocket;
        if (const Meaning peer = at->peer.lock()) peer->over = true;
      }
      return;
    case 0:
      return author.add(who, "linger", {slot, author.chance(80) ? 1 : 0});
    case 1:
      return author.add(who, "timeout", {slot, 1 + author.below(2)});
    case 2:
    case 3: {
      const int on = author.below(2);
      if (at) at->nonblocking = on != 0;
      return author.add(who, "nonblocking", {slot, on, author.below(2)});
    }
    case 4:
      author.close_on_exec(who, slot) = author.chance(50);
      return author.add(who, "close_on_exec", {slot, author.close_on_exec(who, slot) ? 1 : 0});
    default: {
      const int option = author.any_word(kOptions);
      if (is_left_out(option)) return;
      // Rule connection_beside.
      const bool connects = at && (at->thing == Thing::kStream || at->thing == Thing::kSocket);
      if (option == word_value(kOptions, "V6ONLY") && connects) return;
      return author.add(who, "setsockopt", {slot, option, author.below(3)});
    }
  }
}

}  // namespace posix_fuzz
