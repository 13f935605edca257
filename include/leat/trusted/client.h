// The client of a trusted system: it signs requests and believes an answer only if enough nodes
// gave the same one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "leat/attest/identity.h"
#include "leat/export.h"
#include "leat/held.h"
#include "leat/options.h"
#include "leat/trusted/state_machine.h"

namespace leat::trusted {

struct ClientOptions {
  PartyId self = 0;
  std::uint64_t epoch = 0;     // the system's; with a service, that of all its connections
  std::vector<PartyId> nodes;  // requests go to the first; to all if it does not answer
  // How many nodes must give equal answers: f + 1 in a BFT system, all in a chain.
  std::size_t quorum = 0;
  std::size_t window = 4;  // concurrent requests, 1 to 16
  std::chrono::milliseconds retry_after{500};
  std::chrono::milliseconds timeout{10'000};
  // The chain's configuration service (configuration.h), 0 for none. The service names the nodes,
  // all of which must answer; `nodes` and `quorum` are then ignored.
  PartyId service = 0;
  // Witnesses of PeerReview, to which the client passes on every answer that it gets, so that they
  // compare it with the node's log. What comes while one cannot be reached is not passed on to it.
  std::vector<PartyId> witnesses;
  leat::Options channel;  // for each connection; `timeout` is overridden
};

// The outputs of a request's commands, in order.
struct Answer {
  std::uint64_t first = 0;
  std::vector<Bytes> outputs;
};

// Owner: the caller; directory and key outlive it. Threads: one at a time. In a child of fork()
// calls throw leat::Error kClosed.
class LEAT_EXPORT Client {
 public:
  // Connects to all nodes. Those that cannot be reached, now or when a connection is lost, are
  // tried again during the calls below, and asked again what has no answer. Throws leat::Error
  // kInvalidArgument for wrong options or a node without an address; kUnavailable if it reaches
  // fewer than `quorum` nodes, or if the service names none in time.
  Client(const Directory& directory, const SigningKey& key, const ClientOptions& options);
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();  // waits for an attempt to connect that is under way

  // Submits a request of up to kMaxCommands commands under one signature. The nodes execute them in
  // their order, each once, however often the client has to send the request. Blocks while `window`
  // requests are under way. Returns the number of the first command (Answer::first). Throws as
  // receive(), and kTooLarge.
  std::uint64_t submit(std::span<const Bytes> commands);
  // Returns the answer to the oldest request without one; blocks. Throws kTimeout if no quorum gave
  // the same answer within the option `timeout` of this call; the text names the nodes that
  // answered. The request may have been executed or may still be; it remains the oldest, so that
  // the caller can wait again. Throws kTooLarge if the request has more bytes than `quorum` nodes
  // can attest, and kUnavailable if the nodes executed it, or another one with its number, and too
  // few still have an answer: they keep the last 16 of each client, 4 MiB together. Both give the
  // request up. Throws kInvalidArgument if no request is under way.
  Answer receive();
  // Submits a request and receives its answer; drops the answers to earlier requests.
  std::vector<Bytes> call(std::span<const Bytes> commands);

  // The epoch in which requests are sent now: that of the options, or what the service says.
  std::uint64_t epoch() const;

 private:
  struct LEAT_HIDDEN State;
  leat::detail::Held<std::unique_ptr<State>> state_;
};

}  // namespace leat::trusted
