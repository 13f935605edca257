// poll and epoll.
#include <poll.h>
#include <sys/epoll.h>

#include "author.h"
#include "known_differences.h"
#include "steps.h"

namespace posix_fuzz {
namespace {

int some_epoll_events(Author& author) {
  int events = author.chance(60) ? int{EPOLLIN} : author.any_flags(kEpollEvents, 35);
  if (author.chance(40)) events |= static_cast<int>(EPOLLET);
  if (author.chance(12)) events |= EPOLLONESHOT;
  if (author.chance(30)) events |= EPOLLRDHUP;
  return events;
}

void add_to_set(Author& author, int who, int set, int slot, bool any_way = true) {
  const int events = some_epoll_events(author);
  if (const Meaning& added = author.meaning(who, slot)) {
    added->in_set = true;
    added->edge |= (events & static_cast<int>(EPOLLET)) != 0;
  }
  author.add(who, "epoll_ctl",
             {set, EPOLL_CTL_ADD, slot, events, any_way ? author.by_syscall() : 0});
}

}  // namespace

void poll_some(Author& author, int who) {
  int slots[3] = {author.any_slot(who), author.chance(40) ? author.any_slot(who) : kNoSlot,
                  author.chance(20) ? author.any_slot(who) : kNoSlot};
  const int events = author.chance(50) ? POLLIN : author.any_flags(kPollEvents, 50);
  int timeout = author.chance(75) ? 0 : 1;
  if (timeout == 1 && author.may_sleep(who)) timeout = -1;
  author.add(who, "poll",
             {slots[0], slots[1], slots[2], events, timeout, author.any_word(kPollWays)});
}

void maybe_add_to_set(Author& author, int who, int slot) {
  int set = author.slot_of(who, Thing::kEpoll);
  if (set == kNoSlot) {
    if (!author.chance(50)) return;
    set = author.free_slot(who);
    author.add(who, "epoll_create", {set, author.below(2)});
    author.make(who, set, Thing::kEpoll);
  }
  add_to_set(author, who, set, slot);
}

void epoll_some(Author& author, int who) {
  const int set = author.slot_of(who, Thing::kEpoll);
  if (set == kNoSlot) {
    const int slot = author.free_slot(who);
    author.add(who, "epoll_create", {slot, author.below(2)});
    author.make(who, slot, Thing::kEpoll);
    const int times = 1 + author.below(2);
    for (int i = 0; i < times; ++i)
      if (const int member = author.any_slot(who); member != kNoSlot && member != slot)
        add_to_set(author, who, slot, member, false);
    return;
  }
  const int what = author.below(100);
  if (what < 45) {
    int timeout = author.chance(80) ? 0 : 1;
    if (timeout == 1 && author.may_sleep(who)) timeout = -1;
    author.add(who, "epoll_wait", {set, timeout, author.any_word(kEpollWays)});
    return;
  }
  const int member = author.any_slot(who);
  if (member == kNoSlot) return;
  if (what < 75) return add_to_set(author, who, set, member);
  const int control = what < 90 ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
  author.add(who, "epoll_ctl",
             {set, control, member, some_epoll_events(author), author.by_syscall()});
}

}  // namespace posix_fuzz
