// The memory that the controller of a script and its actors share, and how they meet in it. The
// words are futexes, used by raw calls only: none of this is under test.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>

#include "raw.h"
#include "script.h"

namespace posix_fuzz {

// One actor's, written by the controller before an order and by the actor until the answer.
struct Seat {
  // The controller adds one to give an order. Sequentially consistent throughout: nothing here is
  // worth a weaker order.
  std::atomic<std::uint32_t> order{0};
  std::atomic<std::uint32_t> answered{0};  // the order that is done
  std::atomic<std::uint32_t> expected{0};  // a step has made this actor
  std::atomic<std::uint32_t> born{0};      // the actor is at its seat
  std::atomic<std::uint32_t> handled{0};   // signals that its handler has come back from
  std::atomic<int> pid{0};
  std::atomic<int> tid{0};
  int number = 0;  // of the step, for what it sends
  Step step;
  bool receives = false;  // the step is "pump", of another actor
  bool executed = false;  // the step is "exec", and another program has come
  int slots[kSlots];      // for a program that is executed
  std::uint32_t length = 0;
  char text[4000];
};

struct Place {
  sockaddr_storage address;
  socklen_t bytes = 0;
};

struct Stage {
  std::atomic<std::uint32_t> event{0};  // the controller sleeps here
  int controller = 0;                   // its process; without it the actors end
  bool patient = false;                 // the pace is
  std::uint32_t host = 0;               // IPv4 address of this script's listeners
  Place places[kPlaces];
  std::uint32_t filled = 0;  // bytes, by the last step "fill"; 0 once they were received
  Seat seats[kActors];
};

// Where the stage is after exec; no script has such numbers. Below the half of any limit, where
// leat-run would keep its own.
constexpr int kStageNumber = 1000;
constexpr int kOrdersNumber = 1001;
constexpr int kTranscriptsNumber = 1002;
// Which descriptors a process looks at when it says what it has.
constexpr int kScriptNumbers = 64;

inline void announce(Stage& stage) {
  stage.event.fetch_add(1);
  futex_wake(stage.event);
}

}  // namespace posix_fuzz
