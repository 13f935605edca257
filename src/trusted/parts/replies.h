// A node's answers to clients: signed once, and kept in case a client asks again, within bounds: an
// answer that is larger than they are is sent once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "leat/trusted/participant.h"
#include "trusted/parts/ledger.h"

namespace leat::trusted::detail {

class Replies {
 public:
  Replies(const SigningKey& key, PartyId self, std::uint64_t epoch)
      : key_(key), self_(self), epoch_(epoch) {}

  void send(const Done& done, Outbox& outbox);
  // Of a node that waits for others: keeps an answer until `record` is acknowledged, and sends
  // those of all records before `acknowledged`. Records only grow.
  void hold(std::uint64_t record, Done done) { held_.emplace_back(record, std::move(done)); }
  void send_before(std::uint64_t acknowledged, Outbox& outbox);
  // For a request, sent again, whose number is that of an executed command: sends the answer again,
  // `answer` if this node has it elsewhere, unless it is held. If there is none, which may be
  // because the number was used for another request, says so.
  void send_again(const Signed& request, const Done* answer, Outbox& outbox);
  // Tells a client that its request does not fit, and what does.
  void refuse(const Signed& request, std::uint64_t most_bytes, Outbox& outbox) const;

 private:
  // The last kMaxUnderWay answers to a client, in kMaxKeptAnswerBytes.
  struct Kept {
    std::deque<std::pair<StateDigest, Bytes>> replies;
    std::size_t bytes = 0;
  };

  const SigningKey& key_;
  const PartyId self_;
  const std::uint64_t epoch_;
  std::map<PartyId, Kept> kept_;
  std::deque<std::pair<std::uint64_t, Done>> held_;  // by record
};

}  // namespace leat::trusted::detail
