// The side of the one who orders, a leader or the head of a chain: takes requests in, and writes
// the steps that it attests.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
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
  Orderer(Ledger& ledger, unsigned batch) : ledger_(ledger), batch_(batch) {}

  // False: no request of a client, or too many wait already.
  bool take(View request);
  // Whether there is a full batch, or anything at all.
  bool ready(bool also_short) const {
    return ledger_.waiting() >= (also_short ? std::size_t{1} : std::size_t{batch_});
  }
  // Executes the next batch; the payload to be attested. At a checkpoint sets `snapshot` to the
  // state after it.
  Bytes next(bool is_checkpoint, Result& result, Bytes& snapshot);

 private:
  Ledger& ledger_;
  const unsigned batch_;
  Bytes fresh_;  // blobs: the requests that no step has yet
  std::size_t fresh_count_ = 0;
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
