// A node's answers to clients: signed once, and kept in case a client asks again.
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
  // Sends again the answer that was given to that request, if it is one of the client's last; else
  // returns false.
  bool send_again(PartyId client, std::uint64_t first, Outbox& outbox) const;
  // Tells a client that its request does not fit, and what does.
  void refuse(const Signed& request, std::uint64_t most_bytes, Outbox& outbox) const;

  // The most requests that a client may have under way.
  static constexpr std::size_t kKept = 16;

 private:
  const SigningKey& key_;
  const PartyId self_;
  const std::uint64_t epoch_;
  std::map<PartyId, std::deque<std::pair<std::uint64_t, Bytes>>> kept_;
};

}  // namespace leat::trusted::detail
