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

  // What a node says is the least number that it takes from this client. Only before the first
  // request: its number is then one that enough nodes take, whatever the clock says.
  void learn(PartyId node, std::uint64_t next);
  // Whether more nodes should be heard before the first request.
  bool should_learn_more() const;

  // Makes a request, to be sent. Throws kTooLarge, kInvalidArgument.
  const Bytes& submit(std::span<const Bytes> commands);
  std::size_t under_way() const noexcept { return requests_.size(); }
  // All requests without a believed answer, in their order, to be sent again.
  std::vector<View> unanswered() const;

  // Takes a message from any sender. Returns false if it counts for nothing.
  bool receive(View message);
  // Removes and returns the answer to the oldest request, once enough nodes gave it.
  std::optional<Answer> take();
  // Gives up the oldest request and throws: kTooLarge if enough nodes have refused it; kUnavailable
  // if enough have executed it, or another one with its number, and too few still have an answer.
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
    StateDigest digest{};                       // digest_of_request()
    std::map<PartyId, Bytes> replies;           // by node: the whole message
    std::map<PartyId, std::uint64_t> refusals;  // by node: the limit of a request there, or 0
    std::optional<Bytes> believed;
  };

  bool receive_refusal(View message);
  bool is_lost(const Request& request) const;
  // The number that a quorum of the nodes heard would take; 0 if too few were heard.
  std::uint64_t learned() const;

  const Directory& directory_;
  const SigningKey& key_;
  ClientOptions options_;
  std::uint64_t next_;
  bool has_asked_ = false;
  std::map<PartyId, std::uint64_t> numbers_;  // by node: what it says is the next one
  std::deque<Request> requests_;
};

}  // namespace leat::trusted::detail
