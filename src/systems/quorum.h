// The client's part of a trusted system, pure: which answers are believed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "leat/trusted/client.h"
#include "systems/messages.h"

namespace leat::trusted::detail {

class Quorum {
 public:
  Quorum(const Directory& directory, const SigningKey& key, const ClientOptions& options,
         std::uint64_t first);

  // A request, to be sent. Throws kTooLarge, kInvalidArgument.
  const Bytes& submit(std::span<const Bytes> commands);
  std::size_t under_way() const noexcept { return requests_.size(); }
  // All requests without a believed answer, in order, to be sent again.
  std::vector<View> unanswered() const;

  // What came from anybody. False: nothing that counts.
  bool receive(View message);
  // The answer to the oldest request, once enough nodes gave it; taken off.
  std::optional<Answer> take();
  // Throws kTooLarge if the oldest request has been refused by so many nodes; it is given up.
  void check_refused();
  // Other nodes, all of which must answer now: requests that are under way are signed anew.
  void reconfigure(std::uint64_t epoch, const std::vector<PartyId>& nodes);
  std::uint64_t epoch() const noexcept { return options_.epoch; }
  const std::vector<PartyId>& nodes() const noexcept { return options_.nodes; }
  // To a configuration service, of the oldest request; empty if there is nothing to complain of.
  Bytes complaint() const;
  // Whether nodes gave different answers to one request.
  bool in_conflict() const;

  // Which nodes have answered the oldest request so far, for people.
  std::string describe() const;

 private:
  struct Request {
    std::uint64_t first = 0;
    std::size_t count = 0;
    Bytes bytes;
    std::map<PartyId, Bytes> replies;           // by node: the whole message
    std::map<PartyId, std::uint64_t> refusals;  // by node: the most bytes that have room there
    std::optional<Bytes> believed;
  };

  bool receive_refusal(View message);

  const Directory& directory_;
  const SigningKey& key_;
  ClientOptions options_;
  std::uint64_t next_;
  std::deque<Request> requests_;
};

}  // namespace leat::trusted::detail
