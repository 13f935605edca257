// The side of the one who orders, a leader or the head of a chain: takes requests in, and writes
// the steps that it attests.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "systems/ledger.h"

namespace leat::trusted::detail {

// What the commands of one step gave, for comparison with what others say.
struct Result {
  Bytes outputs;
  std::size_t count = 0;
  std::optional<StateDigest> digest;  // at checkpoints
};

class Orderer {
 public:
  // `room`: the most bytes of a step, which a kernel's largest payload sets. Throws leat::Error
  // kInvalidArgument if not even every output has room.
  Orderer(Ledger& ledger, unsigned batch, std::size_t room);

  // The most bytes of a request that has room in a step.
  std::size_t max_request_bytes() const;
  // Keeps a request for the next steps; not if it is in one already, or too many wait.
  void take(View request, const Signed& content);
  // Whether there is a full batch, or anything at all.
  bool ready(bool also_short) const {
    return ledger_.waiting() + fresh_commands_ >=
           (also_short ? std::size_t{1} : std::size_t{batch_});
  }
  // The next step, to be attested: takes the requests into the ledger that are right and have room,
  // and executes a batch, or as much of it as has room. At a checkpoint sets `snapshot` to the
  // state after it. No value: there was nothing right.
  std::optional<Bytes> next(bool is_checkpoint, Result& result, Bytes& snapshot);

 private:
  struct Fresh {
    Bytes request;
    std::size_t commands = 0;
  };

  Ledger& ledger_;
  const unsigned batch_;
  const std::size_t room_;
  std::deque<Fresh> fresh_;  // no step has them yet, and so not the ledger, which is as all have it
  std::size_t fresh_bytes_ = 0, fresh_commands_ = 0;
};

// A client that did not get its answer by way of the one who orders.
class Complaints {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void add(PartyId client, std::uint64_t first, Time until) {
    complaints_.try_emplace(client, Complaint{first, until});
  }
  // Whether one has come to have waited too long since this was asked last. Forgets those that were
  // answered.
  bool overdue(const Ledger& ledger, Time now);

 private:
  struct Complaint {
    std::uint64_t first = 0;
    Time until;
    bool was_overdue = false;
  };
  std::map<PartyId, Complaint> complaints_;
};

}  // namespace leat::trusted::detail
