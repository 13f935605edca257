// The client of a trusted system: signs requests, and believes an answer only if enough nodes gave
// the same.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "leat/export.h"
#include "leat/options.h"
#include "leat/trusted/identity.h"
#include "leat/trusted/state_machine.h"

namespace leat::trusted {

struct ClientOptions {
  PartyId self = 0;
  std::uint64_t epoch = 0;     // of the system; with a service, that of all its connections
  std::vector<PartyId> nodes;  // requests go to the first; to all, if it does not answer
  // Nodes whose answers must be equal: f + 1 of a BFT system, all of a chain.
  std::size_t quorum = 0;
  std::size_t window = 4;  // requests under way, 1 to 16
  std::chrono::milliseconds retry_after{500};
  std::chrono::milliseconds timeout{10'000};
  // A chain's configuration service (configuration.h): it says who the nodes are, and all of them
  // must answer; `nodes` and `quorum` are not used. 0: none.
  PartyId service = 0;
  leat::Options channel;  // of each connection; `timeout` is set here
};

// The outputs of a request's commands, in order.
struct Answer {
  std::uint64_t first = 0;
  std::vector<Bytes> outputs;
};

// Owner: the caller; directory and key outlive it. Threads: one at a time.
class LEAT_EXPORT Client {
 public:
  // Connects to all nodes; those that cannot be reached are left out, and are tried no more, but
  // for a new configuration. Throws leat::Error kInvalidArgument: options, a node without address;
  // kUnavailable: fewer than `quorum` can be reached, or the service names no nodes in time.
  Client(const Directory& directory, const SigningKey& key, const ClientOptions& options);
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  // One request of up to kMaxCommands under one signature; they are executed in their order, each
  // once, however often the request must be sent. Blocks while `window` requests are under way.
  // Throws as receive(); kTooLarge.
  std::uint64_t submit(std::span<const Bytes> commands);
  // The answer to the oldest request that has none yet. Throws kTimeout: no quorum gave the same
  // answer within the option `timeout` since it was sent; the text says who answered. The request
  // may be executed all the same, or still be; it stays the oldest, to be waited for again.
  // kTooLarge: the request has more bytes than `quorum` nodes can attest, and is given up.
  // kInvalidArgument: nothing is under way.
  Answer receive();
  // Both.
  std::vector<Bytes> call(std::span<const Bytes> commands);

  // In which requests are sent now: that of the options, or what the service says.
  std::uint64_t epoch() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace leat::trusted
