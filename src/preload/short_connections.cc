#include "preload/short_connections.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>

#include "preload/configuration.h"
#include "preload/kept_memory.h"

namespace leat::preload {
namespace {

// So many in a row are not a coincidence.
constexpr unsigned kEnoughShort = 8;
// How many stay with TCP until the next look: at first, doubled by each look that finds a short
// one.
constexpr unsigned kFirstPause = 16;
constexpr unsigned kLongestPause = 1024;
// While a look is under way every connection is carried after a first pause, one of 33 after the
// longest: where many are made at a time, the looks would else be a few hundredths of them, each
// ten times as dear as one that stays with TCP.
constexpr unsigned kPausePerGap = 32;
// What is shorter has not won back its meeting.
constexpr std::uint64_t kFewSends = 16;
constexpr std::uint64_t kFewBytes = 65536;

struct Place {
  Address to;
  unsigned in_a_row = 0;
  unsigned pause = 0;    // the last one's length
  unsigned left = 0;     // of the pause, or until the next of a look
  bool pausing = false;  // false: none has ended since the last pause
};

// By a hash of the address: two that share a place push each other out, and are carried. A signal
// handler may come here, so what cannot be counted soon is not.
class Places {
 public:
  bool next(const Address& to) {
    const Locked locked(lock_, lock_.lock_soon());
    if (!locked) return true;
    Place& place = find(to);
    if (!(place.to == to)) return true;
    if (place.left > 0) {
      --place.left;
      return false;
    }
    place.left = place.pause / kPausePerGap;
    place.pausing = false;
    return true;
  }

  void ended(const Address& to, bool was_short) {
    const Locked locked(lock_, lock_.lock_soon());
    if (!locked) return;
    Place& place = find(to);
    if (!(place.to == to) || !was_short) place = {.to = to};
    if (!was_short || ++place.in_a_row < kEnoughShort || place.pausing) return;
    place.pause = std::clamp(place.pause * 2, kFirstPause, kLongestPause);
    place.left = place.pause;
    place.pausing = true;
  }

  SignalSafeLock& lock() { return lock_; }

 private:
  Place& find(const Address& to) {
    std::size_t hash = to.port;
    for (const std::uint8_t byte : to.bytes) hash = hash * 31 + byte;
    return places_[hash % places_.size()];
  }

  SignalSafeLock lock_;
  std::array<Place, 64> places_{};
};

constinit Places places;

}  // namespace

bool worth_carrying(const Address& to) noexcept { return carries_all() || places.next(to); }

bool is_wanted(const sockaddr_storage& address) noexcept {
  if (!matches(address)) return false;
  const Address to = Address::from(address);
  const bool worth = worth_carrying(to);
  if (!worth)
    log(Level::kInfo, "to %s: TCP (connections to it have ended too soon to be worth carrying)",
        to.text().c_str());
  return worth;
}

void note_ended(const Object& object) noexcept {
  // Where another process may have it, what is counted so far is not all.
  if (object.connection.side() != 0 || object.made_at != memory_generation()) return;
  const SharedMemory& memory = *object.connection.memory();
  const Side& own = object.connection.shown();
  // Relaxed: plain counters of a connection that is over.
  const bool was_short = own.sends.load(std::memory_order_relaxed) < kFewSends &&
                         own.sent_bytes.load(std::memory_order_relaxed) < kFewBytes &&
                         own.received_bytes.load(std::memory_order_relaxed) < kFewBytes;
  places.ended(memory.acceptor, was_short);
}

SignalSafeLock& lock_of_short_connections() noexcept { return places.lock(); }

}  // namespace leat::preload
