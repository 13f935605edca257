// The parties of a secure computation, each connected with every other (CORA, section 4): a
// protocol context is selected, and its messages are sent and received by party and index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "leat/channel.h"
#include "leat/export.h"
#include "leat/message_array.h"
#include "leat/options.h"
#include "leat/scml/parser.h"
#include "leat/scml/planner.h"
#include "leat/stats.h"

namespace leat::scml {

namespace detail {
class MeshCore;
}

// How messages travel. What a program sends and receives is the same with each.
enum class Carrier {
  kTcp,       // on TCP, a stream of each context
  kUnified,   // on RDMA, one stream of all contexts, copied out of it message by message
  kContexts,  // on RDMA, a ring of each context; large messages are read where they are
  kPlanned,   // on RDMA, each message straight to its planned place
};
// "tcp", "unified", "contexts", "planned".
LEAT_EXPORT std::string_view to_string(Carrier carrier) noexcept;
// kInvalidArgument, with the names that there are.
LEAT_EXPORT Carrier carrier_named(std::string_view name);

inline constexpr unsigned kMinParties = 2;
inline constexpr unsigned kMaxParties = 16;

// All but `self` and the hosts' own settings must be the same at all parties.
struct MeshOptions {
  std::vector<std::string> addresses;  // "host:port" of each party: its number is its place here
  unsigned self = 0;
  // Of a program with one mesh per thread; added to every port.
  unsigned thread = 0;
  Carrier carrier = Carrier::kPlanned;
  // If not null: memory for messages is what it takes, and parties with another plan are refused.
  // Used during construction only.
  const Plan* plan = nullptr;
  // Of each connection. `connect_timeout` (default 10 s) limits the construction of the mesh, in
  // which `connect_retry` is on; `timeout` each blocking call. planned_bytes (without a plan,
  // default 64 MiB) is the memory for messages of each pair. `transport` is the carrier's matter
  // and ignored.
  Options options;
};

// One party of n. Messages belong to the open array of the selected context (1 to 15; 0 is the
// mesh's own) and to a peer: message i along a flow is sent once, by its sender, in any order, and
// received as often as wanted.
//
// All parties open the same arrays in the same order. A party may send before the others have
// opened; sends that must wait, like every call that waits, take in what arrives meanwhile from all
// parties: all may send any amount before they receive.
//
// Owner: whoever constructed it; move-only. Threads: one at a time; a program with several
// communicating threads makes one mesh in each, with its own number (`thread`), and global indexes.
// Processes: as Channel, connect after forking. The destructor says the others that this party has
// ended. Errors: leat::Error, naming the party. kInvalidArgument for a call that contradicts the
// open arrays: nothing was done. After any other error the mesh is of no more use and throws the
// same again: kPeerDied if any party died while this one waits (or ended, and what is waited for
// cannot come), kProtocol for messages that were not due, as an index that was sent before;
// kTimeout.
class LEAT_EXPORT Mesh {
 public:
  // Listens at its own address, except for the last party; connects to all parties before it and
  // awaits all after it, which may start in any order. Strangers at the listener are turned away.
  // Throws: kInvalidArgument for options that cannot be, or contradict a party's, both are named;
  // kAddress if the own port is in use; kTimeout or kRefused, naming who is missing and who was
  // turned away.
  explicit Mesh(const MeshOptions& options);
  Mesh(Mesh&&) noexcept;
  Mesh& operator=(Mesh&&) noexcept;
  ~Mesh();

  unsigned self() const noexcept;
  unsigned parties() const noexcept;
  unsigned thread() const noexcept;
  Carrier carrier() const noexcept;

  // Opens a placement of the plan, or an array with the flows that it has (`array.incoming` counts
  // for each flow to this party). Only the parties at the other ends of this party's flows take
  // part. Does not wait for them, and selects nothing. Throws kInvalidArgument for an open context,
  // for memory that is in use, or outside the region.
  void open(const Placement& placement);
  void open(unsigned context, const leat::MessageArray& array, std::span<const Flow> flows);
  // Waits until all incoming messages are here, then ends their views and gives the memory back.
  void close(unsigned context);
  bool is_open(unsigned context) const noexcept;
  // The context of the calls to come, until it is closed. Must be open.
  void select(unsigned context);

  // Sends neighbouring messages, from `index` on: bytes.size() is a multiple of the message size,
  // not 0. The bytes are the caller's again on return.
  void send(unsigned peer, std::uint64_t index, std::span<const std::byte> bytes);
  // The same at the index after the last message that was sent so, as on a socket: 0 after open.
  void send(unsigned peer, std::span<const std::byte> bytes);
  // Memory for `count` messages, to be filled and then sent by commit(): with kPlanned on shm it is
  // the peer's own. One reservation at a time for each peer; another one drops it.
  [[nodiscard]] std::span<std::byte> reserve(unsigned peer, std::uint64_t index,
                                             std::uint64_t count = 1);
  void commit(unsigned peer);

  // Blocks until all of these messages are here. Valid until close of the context.
  [[nodiscard]] std::span<const std::byte> receive(unsigned peer, std::uint64_t index,
                                                   std::uint64_t count);
  // The same at the index after the last message that was received so.
  [[nodiscard]] std::span<const std::byte> receive(unsigned peer, std::uint64_t count = 1);

  // Sees to it that everything sent goes on its way without another call. Every call that waits
  // does so too: needed before long computations only.
  void flush();
  // Returns when all parties have called it as often as this one.
  void barrier();

  // Its statistics and description. Its context 0 is the mesh's.
  Channel& channel(unsigned peer);
  // The sum over all peers.
  Stats stats() const;

 private:
  std::unique_ptr<detail::MeshCore> core_;
};

}  // namespace leat::scml
