// The ordering node's part, be it a leader or the head of a chain: takes requests in, and writes
// the steps that it attests.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "trusted/parts/ledger.h"

namespace leat::trusted::detail {

// The result of one step's commands, for comparison with what others attest.
struct Result {
  Bytes outputs;
  std::size_t count = 0;
  std::optional<StateDigest> digest;  // at checkpoints
};

class Orderer {
 public:
  // `room`: the limit of a step in bytes, set by an attestor's largest payload. Throws leat::Error
  // kInvalidArgument if an output of any size would not fit.
  Orderer(Ledger& ledger, unsigned batch, std::size_t room);

  // The limit of a request that fits into a step, in bytes.
  std::size_t max_request_bytes() const;
  // Keeps a right request until its client's turn, unless a step has it already. Of a client no
  // more than kMaxUnderWay wait, those with the lowest numbers: a number left out is refused for
  // ever once a later one was taken.
  void take(View request, const Signed& content);
  // Whether there is a full batch or, with `also_short`, anything at all.
  bool ready(bool also_short) const {
    return ledger_.waiting() + fresh_commands_ >=
           (also_short ? std::size_t{1} : std::size_t{batch_});
  }
  // Returns the next step, to be attested: takes requests of all clients in turns until the ledger
  // has a batch or no more fit, and executes a batch, or as much of it as fits. So a client waits
  // for at most one request of each of the others. At a checkpoint sets `snapshot` to the state
  // after it. No value if there is nothing to execute.
  std::optional<Bytes> next(bool is_checkpoint, Result& result, Bytes& snapshot);

 private:
  struct Fresh {
    Bytes request;
    std::size_t commands = 0;
  };
  using Requests = std::map<std::uint64_t, Fresh>;  // by number; not empty

  // The client whose turn is next; fresh_ is not empty.
  std::map<PartyId, Requests>::iterator next_client();
  void remove(std::map<PartyId, Requests>::iterator client, Requests::iterator request);

  Ledger& ledger_;
  const unsigned batch_;
  const std::size_t room_;
  std::map<PartyId, Requests> fresh_;  // no step has them, nor the ledger, which all have alike
  std::size_t fresh_commands_ = 0;
  PartyId last_ = 0;  // the client whose turn it was
};

// Complaints of clients that got no answer from the ordering node.
class Complaints {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void add(PartyId client, std::uint64_t first, Time until) {
    complaints_.try_emplace(client, Complaint{first, until});
  }
  // Whether a complaint has become overdue since the last call. Forgets those that were answered.
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
