// One descriptor in a set of epoll: what the program wants to hear of it, and what it has heard.
#pragma once

#include <sys/epoll.h>

#include <cstdint>

namespace leat::posix {

// What edge-triggered waiting compares. `arrivals` changes with everything that comes, `state` with
// every change of TCP's state, of which the kernel tells whatever is asked, and `full` with every
// lack of room.
struct EdgeMarks {
  std::uint64_t arrivals = 0;
  std::uint32_t state = 0;
  std::uint32_t full = 0;
  bool operator==(const EdgeMarks&) const = default;
};

// Value type; for one thread at a time.
struct EpollInterest {
  // The flags among an interest's events: they say how to report, not what.
  static constexpr std::uint32_t kHow = EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP;

  std::uint32_t events = 0;  // as the program wants, with kHow
  epoll_data_t data{};
  bool disabled = false;  // EPOLLONESHOT has fired
  std::uint32_t reported = 0;
  EdgeMarks seen;

  // By EPOLL_CTL_ADD or _MOD: whatever is there is new.
  void want(const epoll_event& event) {
    events = event.events;
    data = event.data;
    disabled = false;
    reported = 0;
    seen = {.state = ~std::uint32_t{0}};
  }

  // Whether the kernel would refuse that because of EPOLLEXCLUSIVE; `known`: null unless the
  // descriptor is in the set.
  static bool bad_exclusive(int operation, const EpollInterest* known, const epoll_event& event) {
    constexpr std::uint32_t kWithExclusive =
        EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;
    const bool wanted = (event.events & EPOLLEXCLUSIVE) != 0;
    if (operation == EPOLL_CTL_MOD)
      return known != nullptr && (wanted || (known->events & EPOLLEXCLUSIVE) != 0);
    return operation == EPOLL_CTL_ADD && wanted && (event.events & ~kWithExclusive) != 0;
  }

  // Of poll(2)'s answer what the program asked for, or gets unasked.
  std::uint32_t ready(std::uint32_t mask) const {
    return mask & ((events & ~kHow) | EPOLLERR | EPOLLHUP);
  }

  bool is_edge(std::uint32_t ready, const EdgeMarks& marks) const {
    // An interest in none of these hears of no bytes that arrive.
    constexpr std::uint32_t kArrival = EPOLLIN | EPOLLRDNORM | EPOLLRDBAND | EPOLLPRI;
    return (ready & ~reported) != 0 || marks.state != seen.state ||
           (marks.arrivals != seen.arrivals && (events & kArrival) != 0) ||
           (marks.full != seen.full && (ready & EPOLLOUT) != 0);
  }

  // The events to report to the program now; 0: none. `marks` are taken after `mask`. `again`: the
  // program gets an event for this descriptor already, and what is new is added to that.
  std::uint32_t news(std::uint32_t mask, const EdgeMarks& marks, bool again = false) {
    const std::uint32_t told = ready(mask);
    if (told == 0) reported = 0;
    const bool any = told != 0 && (again || (events & EPOLLET) == 0 || is_edge(told, marks));
    return any ? told : 0;
  }

  // It hears that.
  void tell(std::uint32_t told, const EdgeMarks& marks) {
    reported = told;
    seen = marks;
    fire();
  }
  void fire() { disabled = disabled || (events & EPOLLONESHOT) != 0; }
};

}  // namespace leat::posix
