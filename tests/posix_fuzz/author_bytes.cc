// What is sent and received.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <vector>

#include "author.h"
#include "known_differences.h"
#include "steps.h"

namespace posix_fuzz {
namespace {

bool takes_flags(int form) {
  for (const char* name :
       {"recv", "recv_chk", "recvfrom", "recvmsg", "recvmmsg", "sys_recvfrom", "sys_recvmsg"})
    if (form == word_value(kGetForms, name)) return true;
  return false;
}

}  // namespace

void put(Author& author, int who) {
  const int slot = author.chance(85) ? author.slot_of(who, Thing::kStream) : author.any_slot(who);
  if (slot == kNoSlot) return;
  const Meaning to = author.meaning(who, slot);
  const int count = author.some_bytes();
  int form = author.any_word(kPutForms);
  const int flags = author.chance(70) ? MSG_NOSIGNAL : author.any_flags(kSendFlags, 20) & ~MSG_OOB;
  // Rule sent_by_copying.
  if (to && to->sent) return;
  if (to && to->thing == Thing::kStream) {
    const Meaning peer = to->peer.lock();
    // Rules reset_within_call, parts_and_sleepers.
    if (form == word_value(kPutForms, "sendmmsg2") &&
        (to->over || !peer || author.has_sleepers() || author.is_received_by_others(who, peer)))
      form = word_value(kPutForms, "sendmmsg");
    // So much fits everywhere: how much more is open.
    if ((peer ? peer->unread : to->queued) + 2 * count > 30'000) return;
    const int sent = form == word_value(kPutForms, "sendmmsg2") ? 2 * count : count;
    if (peer) {
      peer->unread += sent;
    } else {
      to->queued += sent;
    }
  }
  author.add(who, "put", {slot, form, count, flags});
}

void get(Author& author, int who) {
  const int slot = author.chance(85) ? author.slot_of(who, Thing::kStream) : author.any_slot(who);
  if (slot == kNoSlot) return;
  const Meaning from = author.meaning(who, slot);
  const int count = author.some_bytes();
  const int form = author.any_word(kGetForms);
  int flags = author.chance(60) ? 0 : author.any_flags(kReceiveFlags, 25) & ~MSG_OOB;
  if (from && !from->nonblocking && (from->thing == Thing::kStream)) {
    const bool waits_for_all = (flags & MSG_WAITALL) != 0 && count > from->unread;
    const bool comes = from->over || (from->unread > 0 && !waits_for_all);
    const bool has_flags = form != word_value(kGetForms, "read") && takes_flags(form);
    // Rules woken_for_nothing and one_sleeper; what comes may be another's.
    constexpr int kPeekAll = MSG_PEEK | MSG_WAITALL;
    const bool at_once =
        count == 0 || (flags & kPeekAll) == kPeekAll || author.is_received_by_others(who, from);
    if (!at_once) author.actor(who).received_at = from;
    if (at_once || (!comes && !author.may_sleep(who))) {
      if (!has_flags) return get_at_once(author, who, slot, count);
      flags |= MSG_DONTWAIT;
    }
  }
  author.add(who, "get", {slot, form, count, flags});
  if (from && (flags & MSG_PEEK) == 0) from->unread = std::max(0, from->unread - count);
}

void empty(Author& author, int who, int slot) {
  for (int i = 0; i < 4; ++i) get_at_once(author, who, slot, 8192);
}

void get_at_once(Author& author, int who, int slot, int count) {
  author.add(who, "get", {slot, word_value(kGetForms, "recv"), count, MSG_DONTWAIT});
  if (const Meaning from = author.meaning(who, slot))
    from->unread = std::max(0, from->unread - count);
}

void move_bytes(Author& author, int who) {
  const int stream = author.slot_of(who, Thing::kStream);
  if (stream == kNoSlot) return;
  switch (author.below(4)) {
    case 0:
      if (const int file = author.slot_of(who, Thing::kFile); file != kNoSlot) {
        author.meaning(who, file)->sent = true;
        author.add(who, "sendfile", {stream, file, author.below(400), author.below(400)});
      }
      break;
    case 1:
      if (const int pipe = author.slot_of(who, Thing::kPipeReader); pipe != kNoSlot)
        author.add(who, "splice", {pipe, stream, 1 + author.below(1000)});
      break;
    case 2:
      if (const int pipe = author.slot_of(who, Thing::kPipeWriter);
          pipe != kNoSlot &&
          (author.meaning(who, stream)->unread > 0 || author.meaning(who, stream)->nonblocking))
        author.add(who, "splice", {stream, pipe, 1 + author.below(1000)});
      break;
    default:
      if (author.outlives_in_set(who, stream)) return;
      author.add(who, "stream", {stream, author.some_bytes()});
      author.forget(who, stream);
  }
}

// A stream whose other end an actor of another process has.
struct Ends {
  int slot = kNoSlot;
  int other = Author::kNoActor;
  int other_slot = kNoSlot;
};

void move_many_bytes(Author& author, int who) {
  Ends ends;
  const auto both_open = [](const Described& one) {
    const Meaning peer = one.peer.lock();
    return one.thing == Thing::kStream && !one.over && peer && !peer->over;
  };
  ends.slot = author.slot_where(who, both_open);
  if (ends.slot == kNoSlot || author.has_sleepers()) return;
  const Meaning peer = author.meaning(who, ends.slot)->peer.lock();
  for (int i = 0; i < kActors; ++i) {
    const ModelActor& one = author.actor(i);
    if (!one.alive || one.stopped || one.process == author.actor(who).process) continue;
    const int slot =
        author.slot_where(i, [&](const Described& found) { return &found == peer.get(); });
    if (slot != kNoSlot) {
      ends.other = i;
      ends.other_slot = slot;
    }
  }
  if (ends.other == Author::kNoActor) return;
  // How much fits is open, so that a part of what waits may come only when there is room again.
  empty(author, ends.other, ends.other_slot);
  if (author.chance(50)) {
    author.add(who, "pump",
               {ends.slot, ends.other, ends.other_slot, 20'000 + author.below(600'000)});
    return;
  }
  // That it is all there, and when there is room, is not open.
  author.add(who, "fill", {ends.slot});
  author.add(who, "poll", {ends.slot, kNoSlot, kNoSlot, POLLIN | POLLOUT, 0, 0});
  author.add(ends.other, "empty", {ends.other_slot});
  author.add(who, "poll", {ends.slot, kNoSlot, kNoSlot, POLLIN | POLLOUT, 1, 0});
}

// Where nothing else waits: rule urgent.
void send_urgently(Author& author, int who) {
  const int slot = author.slot_where(who, [](const Described& one) {
    const Meaning peer = one.peer.lock();
    return one.thing == Thing::kStream && !one.over && peer && !peer->over;
  });
  if (slot == kNoSlot || author.has_sleepers()) return;
  const Meaning peer = author.meaning(who, slot)->peer.lock();
  for (int i = 0; i < kActors; ++i) {
    if (!author.actor(i).alive || author.actor(i).stopped) continue;
    const int other =
        author.slot_where(i, [&](const Described& found) { return &found == peer.get(); });
    if (other == kNoSlot) continue;
    empty(author, i, other);
    const int form = word_value(kGetForms, "recv");
    author.add(who, "put",
               {slot, word_value(kPutForms, "send"), 1 + author.below(3), MSG_OOB | MSG_NOSIGNAL});
    author.add(i, "poll", {other, kNoSlot, kNoSlot, POLLIN | POLLPRI, 0, 0});
    author.add(i, "get", {other, form, 1, MSG_OOB});
    // The second passes the place of the urgent byte, where a call for no bytes ends on TCP.
    get_at_once(author, i, other, 100);
    get_at_once(author, i, other, 100);
    return;
  }
}

void pass_one(Author& author, int who) {
  const int through = author.slot_of(who, Thing::kUnix);
  if (through == kNoSlot) return;
  const Meaning pair = author.meaning(who, through);
  if (pair->passed) {
    const int slot = author.free_slot(who);
    author.add(who, "take", {through, slot});
    author.forget(who, slot);
    author.meaning(who, slot) = std::move(pair->passed);
    return;
  }
  const int passed = author.any_slot(who);
  const Meaning peer = pair->peer.lock();
  if (passed == kNoSlot || !peer || !author.meaning(who, passed) ||
      author.meaning(who, passed)->thing == Thing::kUnix)
    return;
  author.add(who, "pass", {through, passed});
  peer->passed = author.meaning(who, passed);
}

}  // namespace posix_fuzz
