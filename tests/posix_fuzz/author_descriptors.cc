// What is opened, copied and closed.
#include <poll.h>
#include <sys/socket.h>

#include "author.h"
#include "known_differences.h"
#include "steps.h"

namespace posix_fuzz {
namespace {

void use_new(Author& author, int who) {
  const int slot = author.newest;
  if (slot == kNoSlot || !author.meaning(who, slot)) return;
  const int puts = author.any_word(kPutForms);
  const int gets = author.any_word(kGetForms);
  if (author.meaning(who, slot)->thing == Thing::kStream ||
      author.meaning(who, slot)->thing == Thing::kSocket)
    return;
  if (author.chance(60)) author.add(who, "put", {slot, puts, author.some_bytes(), MSG_NOSIGNAL});
  if (author.chance(60)) author.add(who, "get", {slot, gets, author.some_bytes(), 0});
  if (author.chance(25)) author.add(who, "waiting_bytes", {slot});
  if (author.chance(25))
    author.add(who, "poll",
               {slot, kNoSlot, kNoSlot, POLLIN | POLLOUT, 0, author.any_word(kPollWays)});
}

}  // namespace

void close_one(Author& author, int who) {
  const int slot = author.any_slot(who);
  if (slot == kNoSlot) return;
  const Meaning gone = author.meaning(who, slot);
  const int way = author.mostly_first(kCloseWays, 30);
  if (author.outlives_in_set(who, slot, is_unseen_close(way))) return;
  if (gone && gone->thing == Thing::kStream && is_unseen_close(way)) {
    // Rule unseen_close.
    empty(author, who, slot);
  }
  author.add(who, "close", {slot, way});
  author.forget(who, slot);
  // The number is used again.
  if (!author.chance(60)) return;
  const int times = 1 + author.below(2);
  for (int i = 0; i < times; ++i) {
    open_one(author, who);
    if (author.chance(70)) use_new(author, who);
  }
}

void open_one(Author& author, int who) {
  const int slot = author.free_slot(who);
  author.newest = slot;
  const int way = author.any_word(kOpenWays);
  switch (author.below(5)) {
    case 0:
    case 1:
      author.add(who, "file", {slot, way});
      author.make(who, slot, Thing::kFile);
      break;
    case 2:
    case 3: {
      const bool unix_pair = author.chance(30);
      const Meaning first = author.make(who, slot, unix_pair ? Thing::kUnix : Thing::kPipeReader);
      const int second_slot = author.free_slot(who);
      const Meaning second =
          author.make(who, second_slot, unix_pair ? Thing::kUnix : Thing::kPipeWriter);
      first->nonblocking = second->nonblocking = true;
      first->peer = second;
      second->peer = first;
      author.add(who, unix_pair ? "socketpair" : "pipe", {slot, second_slot, way});
      author.newest = author.chance(50) ? slot : second_slot;
      break;
    }
    default:
      author.add(who, "eventfd", {slot, way});
      author.make(who, slot, Thing::kEventfd)->nonblocking = true;
  }
}

void copy_one(Author& author, int who) {
  const int slot = author.any_slot(who);
  if (slot == kNoSlot) return;
  const Meaning same = author.meaning(who, slot);
  if (author.chance(5)) {
    const int number = author.below(3);
    author.actor(who).process->hears_loader |= number == 2;
    return author.add(who, "standard", {slot, number});
  }
  const int what = author.below(3);
  const int to = what == 2 ? author.any_slot(who) : author.free_slot(who);
  if (to == kNoSlot || to == slot) return;
  bool on_exec = false;
  if (what == 0) author.add(who, "dup", {slot, to});
  if (what == 1) {
    const int least = author.below(30);
    on_exec = author.below(2) != 0;
    author.add(who, "dupfd", {slot, to, least, on_exec ? 1 : 0});
  }
  if (what == 2) {
    const int way = author.any_word(kDupWays);
    on_exec = way == word_value(kDupWays, "dup3_cloexec");
    if (author.outlives_in_set(who, to, is_unseen_copy(way))) return;
    // Rule unseen_copy.
    const bool is_carried =
        same && (same->thing == Thing::kStream || same->thing == Thing::kSocket ||
                 same->thing == Thing::kListener || same->thing == Thing::kEpoll);
    if (is_carried && is_unseen_copy(way)) return;
    if (const Meaning over = author.meaning(who, to);
        over && over->thing == Thing::kStream && is_unseen_copy(way))
      empty(author, who, to);
    author.add(who, "dup2", {slot, to, way});
  }
  author.forget(who, to);
  author.meaning(who, to) = same;
  author.close_on_exec(who, to) = on_exec;
  if (same) same->copied = true;
}

// Few numbers are left, or many again.
void limit_numbers(Author& author, int who) {
  const int limit = author.chance(60) ? 5 + author.below(8) : 500;
  author.actor(who).process->has_few_numbers = limit < 500;
  author.add(who, "limit", {limit});
}

void look(Author& author, int who) { author.add(who, "look"); }

void end_with_look(Author& author) {
  for (int i = 0; i < kActors; ++i)
    if (author.actor(i).alive && !author.actor(i).is_thread && !author.actor(i).stopped)
      author.add(i, "look");
}

}  // namespace posix_fuzz
