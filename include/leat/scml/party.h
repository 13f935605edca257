// The parties of a secure computation, each connected with every other (CORA, section 4). A party
// selects a protocol context, and sends and receives its messages by party and index.
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
#include "leat/held.h"
#include "leat/message_array.h"
#include "leat/options.h"
#include "leat/scml/parser.h"
#include "leat/scml/planner.h"
#include "leat/stats.h"

namespace leat::scml {

namespace detail {
class MeshCore;
}

// How messages travel. It does not change what a program sends and receives.
enum class Carrier {
  kTcp,       // over TCP, one stream for each context up to 15, one for all others
  kUnified,   // over RDMA, one stream for all contexts, copied out message by message
  kContexts,  // over RDMA, one ring for each context up to 15, where large messages are read in
              // place; one for all others
  kPlanned,   // over RDMA, each message straight to its planned place; where the option
              // `confidential` has the connection encrypted, as kContexts
};
// "tcp", "unified", "contexts", "planned".
LEAT_EXPORT std::string_view to_string(Carrier carrier) noexcept;
// The carrier of that name. Throws kInvalidArgument, listing all names.
LEAT_EXPORT Carrier carrier_named(std::string_view name);

inline constexpr unsigned kMinParties = 2;
inline constexpr unsigned kMaxParties = 16;

// Equal at all parties, except for `self` and the hosts' own settings.
struct MeshOptions {
  std::vector<std::string> addresses;  // "host:port" of each party; the index is its number
  unsigned self = 0;
  // The number of this mesh in a program with one mesh for each thread. It is added to every port.
  unsigned thread = 0;
  Carrier carrier = Carrier::kPlanned;
  // If not null, the plan determines the memory for messages, and a party with another plan is
  // refused. Used during construction only.
  const Plan* plan = nullptr;
  // Options of each connection. `connect_timeout` (default 10 s) limits the construction of the
  // mesh, during which `connect_retry` is on; `timeout` limits each blocking call. `planned_bytes`
  // (default without a plan: 64 MiB) is the memory for each pair's messages. The carrier determines
  // `transport`; a value here is ignored.
  Options options;
};

// One party of n. A message belongs to a peer and to the open array of the selected context (1 to
// 255; context 0 belongs to the mesh). The sender sends message i along a flow once, in any order;
// the receiver may receive it any number of times.
//
// All parties open the same arrays in the same order. A party may send before the others have
// opened the array. Every call that waits, sends included, takes in what arrives from all parties
// meanwhile, so that all of them may send any amount before they receive.
//
// Owner: the caller that constructed it; move-only. Threads: one at a time. A program with several
// communicating threads makes one mesh in each, with a number of its own (`thread`) and global
// indexes. Processes: as for Channel, connect after forking. The destructor tells the other parties
// that this one has ended.
// Errors: leat::Error, naming the party. kInvalidArgument for a call that contradicts the open
// arrays; nothing was done. After any other error the mesh is unusable and throws that error again:
// kPeerDied if any party died while this one waited, or ended and cannot send what this one waits
// for; kProtocol for a message that was not due, such as a repeated index; kTimeout.
class LEAT_EXPORT Mesh {
 public:
  // Listens at its own address (all but the last party), connects to all parties before it and
  // waits for all after it; they may start in any order. Strangers at the listener are turned away.
  // Throws kInvalidArgument for impossible options, or for options that contradict another party's
  // (it shows both); kAddress if its own port is in use; kTimeout or kRefused, naming the missing
  // parties and those turned away.
  explicit Mesh(const MeshOptions& options);
  Mesh(Mesh&&) noexcept;
  Mesh& operator=(Mesh&&) noexcept;
  ~Mesh();

  unsigned self() const;
  unsigned parties() const;
  unsigned thread() const;
  Carrier carrier() const;

  // Opens a placement of the plan, or an array with the given flows (`array.incoming` counts for
  // each flow to this party). It involves only the parties at the other ends of this party's flows,
  // does not wait for them, and selects no context. Throws kInvalidArgument if the context is open,
  // or if the memory is in use or outside the region.
  void open(const Placement& placement);
  void open(unsigned context, const leat::MessageArray& array, std::span<const Flow> flows);
  // Waits until all incoming messages have arrived, then invalidates their views and frees the
  // memory.
  void close(unsigned context);
  bool is_open(unsigned context) const;
  // Selects the open context for later calls, until it is closed.
  void select(unsigned context);

  // Sends adjacent messages, the first with `index`; bytes.size() is a positive multiple of the
  // message size. On return the caller may reuse the bytes.
  void send(unsigned peer, std::uint64_t index, std::span<const std::byte> bytes);
  // The same at the index that follows the last message sent by this call, as on a socket; 0 after
  // open().
  void send(unsigned peer, std::span<const std::byte> bytes);
  // Returns memory for `count` messages, which the caller fills and sends with commit(); with
  // kPlanned on shm it is the peer's own memory. One reservation at a time for each peer; another
  // one, or close() of its context, drops it. commit() sends it whatever is selected by then.
  [[nodiscard]] std::span<std::byte> reserve(unsigned peer, std::uint64_t index,
                                             std::uint64_t count = 1);
  void commit(unsigned peer);

  // Returns the bytes of these messages; blocks until all have arrived. Valid until the context is
  // closed.
  [[nodiscard]] std::span<const std::byte> receive(unsigned peer, std::uint64_t index,
                                                   std::uint64_t count);
  // The same at the index that follows the last message received by this call.
  [[nodiscard]] std::span<const std::byte> receive(unsigned peer, std::uint64_t count = 1);

  // Posts everything sent, so that it leaves without another call. Every call that waits does the
  // same, so this is needed only before long computations.
  void flush();
  // Blocks until every party has called it as often as this one.
  void barrier();

  // The channel to a peer, for its statistics and description. Its context 0 belongs to the mesh.
  Channel& channel(unsigned peer);
  // The sum over all peers.
  Stats stats() const;

 private:
  leat::detail::Held<std::unique_ptr<detail::MeshCore>> core_;
};

}  // namespace leat::scml
