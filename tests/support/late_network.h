// Two queue pairs in one process whose requests take their time, in every way that the contract of
// src/verbs/device.h allows (late_order.h). Nothing happens by itself: each step does a little of
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "verbs/device.h"

namespace leat::detail {

class LateNetwork {
 public:
  // `send_depth`: requests of one queue pair that may be under way. Polling too does a step now and
  // then, as a device goes on while a program waits for it.
  LateNetwork(std::uint64_t seed, std::size_t send_depth);
  ~LateNetwork();
  LateNetwork(const LateNetwork&) = delete;
  LateNetwork& operator=(const LateNetwork&) = delete;

  // For either end. They, and what they make, must not outlive the network. A queue pair that is
  // destroyed breaks the network down.
  std::unique_ptr<Device> device();
  std::unique_ptr<QueuePair> queue_pair(unsigned end);  // 0, 1

  // Goes on with a request of either end.
  void step();
  // Whether nothing is under way: only what somebody posts can change anything.
  bool quiet() const;
  // Whether a receiver that sleeps at that end would be woken. While something is under way now
  // and then also without cause.
  bool wakes(unsigned end);
  // Until told otherwise, receivers do not hear of what comes; its bytes come.
  void hold_arrivals(bool hold);
  // Requests that are under way fail, at any point of theirs.
  void break_down();

 private:
  class State;
  class LateQueuePair;
  class LateDevice;
  class LateRegion;

  std::unique_ptr<State> state_;
};

}  // namespace leat::detail
