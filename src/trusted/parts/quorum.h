// The client's part of a trusted system: which answers are believed. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "leat/trusted/client.h"
#include "trusted/parts/messages.h"

namespace leat::trusted::detail {

class Quorum {
 public:
  Quorum(const Directory& directory, const SigningKey& key, const ClientOptions& options,
         std::uint64_t first);

  // Makes a request, to be sent. Throws kTooLarge, kInvalidArgument.
  const Bytes& submit(std::span<const Bytes> commands);
  std::size_t under_way() const noexcept { return requests_.size(); }
  // All requests without a believed answer, in their order, to be sent again.
  std::vector<View> unanswered() const;

  // Takes a message from any sender. Returns false if it counts for nothing.
  bool receive(View message);
  // Removes and returns the answer to the oldest request, once enough nodes gave it.
  std::optional<Answer> take();
  // If enough nodes have refused the oldest request, gives it up and throws kTooLarge.
  void check_refused();
  // Other nodes, all of which must answer from now on: signs the requests under way again.
  void reconfigure(std::uint64_t epoch, const std::vector<PartyId>& nodes);
  std::uint64_t epoch() const noexcept { return options_.epoch; }
  const std::vector<PartyId>& nodes() const noexcept { return options_.nodes; }
  // A complaint to a configuration service about the oldest request; empty if there is no reason
  // for one.
  Bytes complaint() const;
  // Whether nodes gave different answers to one request.
  bool in_conflict() const;

  // Names the nodes that have answered the oldest request; for people.
  std::string describe() const;

 private:
  struct Request {
    std::uint64_t first = 0;
    std::size_t count = 0;
    Bytes bytes;
    std::map<PartyId, Bytes> replies;           // by node: the whole message
    std::map<PartyId, std::uint64_t> refusals;  // by node: the limit of a request there, in bytes
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
