// As much of Piranha's global counter as an adapter meets.
#pragma once

#include <atomic>

namespace leat::stand_in {

struct CommunicationCounter {
  // Piranha's names.
  // NOLINTBEGIN(readability-identifier-naming)
  void incrementSent(int bytes) { sent += bytes; }
  void incrementRecv(int bytes) { received += bytes; }
  // NOLINTEND(readability-identifier-naming)

  std::atomic<long> sent{0};
  std::atomic<long> received{0};
};

}  // namespace leat::stand_in
