// The verbs that leat stands on: devices, memory regions and reliable connected queue pairs, with
// the names and guarantees of the verbs specification. Two devices implement them: `ib` (rdma-core)
// and `shm` (the processes of one host). tests/verbs has a test for each sentence of this contract,
// run on every device, between threads and between processes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "verbs/request.h"

namespace leat::detail {

class Arrivals;

struct Limits {
  std::size_t max_inline_bytes = 0;      // at least 8
  std::size_t max_send_requests = 0;     // outstanding on one queue pair
  std::size_t max_receive_requests = 0;  // posted on one queue pair
  std::size_t max_request_bytes = 0;     // of one request
  bool pins_memory = false;              // allocated memory counts against the locked-memory limit
  bool immediates = true;                // kWriteWithImmediate, which every transport needs
  // A request has run when post_send returns, and both processes address the regions' memory: what
  // one process stores at peer_memory(), and then there or into a region of its own by a release
  // store, the other loads in that order. So it can move bytes and read words without any request.
  bool shares_memory = false;
};

struct DeviceInfo {
  std::string name;         // as users write it: "shm", "ib:mlx5_0"
  bool usable = false;      // a queue pair can be made
  std::string why_not;      // if not usable: what failed and what to do
  std::string description;  // port, link layer, MTU, GID; for logs and leat-info
  unsigned mtu_bytes = 0;   // of the path; 0 if it has none
};

// Memory that requests may name. Owned by its holder; the device must outlive it.
// Destruction revokes the region's key: later requests of the peer that name it fail.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  virtual std::span<std::byte> memory() const = 0;
  virtual std::uint32_t local_key() const = 0;
  virtual RemoteRegion remote() const = 0;
  // Hints that all of this part will be written: a device that takes memory only when it is touched
  // may take this part now, in larger pages. One thread at a time.
  virtual void prepare(std::size_t /*offset*/, std::size_t /*bytes*/) noexcept {}
};

enum class Side { kSend, kReceive };

// A reliable connected queue pair.
//
// Order: requests complete in post order. Aligned 8-byte words are written and read whole, and
// requests of one queue pair change the same word, here or at the peer, in post order. Nothing else
// is guaranteed for bytes in flight: the words of a write become visible in any order, later writes
// before earlier ones, and perhaps only after the write's completion at its sender. So no word that
// the peer can look at tells it anything of other words. All bytes of a write are visible to the
// peer
// - when it has polled the write's own immediate, or a later one;
// - when a later read is over: a read comes after all requests posted before it, and returns bytes
//   no older than its post. A request posted after a read need not wait for it, unless that request
//   is `fenced`: then the writes before the read are visible before the request's first byte is;
// - when the peer has destroyed its queue pair, if the write had completed.
// The words of a read arrive in any order, later reads before earlier ones; all have arrived at its
// completion or that of a later request.
// Failure: the first request that fails completes with its reason and leaves the target's memory
// untouched. The queue pair is then in error: all other requests, including later ones, complete as
// kFlushed. Requests posted behind the failed one do not run; behind a read they may have run. A
// dead peer fails requests within the timeout, with kPeerGone or, where its memory goes before it,
// kRemoteAccess, and flushes posted receives. Destruction with pending work is safe.
// Threads: one thread sends (post_send, poll_sends, arm(kSend)) while another receives
// (post_receives, poll_receives, arm(kReceive)); the receiving thread may also post_send
// unsignaled, inlined writes, which is how credits return. A caller that posts anything else from
// both threads must guard post_send and poll_sends by a lock of its own. No call blocks.
class QueuePair {
 public:
  virtual ~QueuePair() = default;

  // Returns how many requests, from the first, it accepted. Fewer than given means that there is no
  // room now: the send queue is full or, on a device that runs requests as they are posted, the
  // peer has no receive posted. Try again after a completion, or sleep after arm(kSend).
  virtual std::size_t post_send(std::span<const SendRequest> requests) = 0;
  // A receive takes the immediate of one kWriteWithImmediate; it has no memory of its own. Returns
  // how many of `count` the queue had room for.
  virtual std::size_t post_receives(std::size_t count) = 0;

  // Return how many completions they stored; 0 if there is none now.
  virtual std::size_t poll_sends(std::span<Completion> completions) = 0;
  virtual std::size_t poll_receives(std::span<Completion> completions) = 0;

  // Consumes past events, and requests one at the next completion of that side (on the send side,
  // also when there is room again). After arm() poll until there is no completion, then wait until
  // event_fd(side) is readable; polling meanwhile does not withdraw the request. Events may be
  // spurious.
  virtual void arm(Side side) = 0;
  // Notifies the peer's send side, if armed, of room that no completion tells it of. Does nothing
  // where processes share no memory, so a waiter for such room must also look by itself. Receive
  // side.
  virtual void wake_sender() {}
  // Owned by the queue pair, and constant for its life.
  virtual int event_fd(Side side) const = 0;

  // Where this process can store into the peer's region; null if the device cannot do that or the
  // access is not allowed. A write whose `local` is that address moves no byte: fill in place, then
  // post. Valid while the peer's region and this queue pair exist.
  virtual std::byte* peer_memory(const RemoteRegion& part) = 0;

  // Where arrivals are memory that both processes share: their two ends, with which a caller may do
  // what post_send and poll_receives do, without a request each; null elsewhere. Each end has the
  // threads of its side, and calls of both kinds may alternate.
  virtual Arrivals* arrivals() { return nullptr; }

  // How often a request had to wait because the peer had no receive posted. On ib this is the
  // port's count for all its connections since this one was made; 0 if the device does not count.
  // Any thread; may be a system call.
  virtual std::uint64_t rnr_retries() const = 0;

  // For logs and errors: device, port, addresses, state.
  virtual std::string describe() const = 0;
};

struct QueueDepths {
  std::size_t send_requests = 256;
  std::size_t receive_requests = 1024;
};

// The passive half of a connection, waiting for its peer.
class Offer {
 public:
  virtual ~Offer() = default;
  // For the peer's Device::connect; at most kMaxOfferBytes. Secret, because its holder can connect.
  virtual std::vector<std::byte> blob() const = 0;
  // Blocks until the peer has connected. Strangers are turned away and do not end the wait. Throws
  // kTimeout at the deadline, and kPeerDied once `lifeline` (a socket, or -1) is readable or hung
  // up.
  virtual std::unique_ptr<QueuePair> accept(Deadline deadline, int lifeline) = 0;
};
inline constexpr std::size_t kMaxOfferBytes = 256;

// One device, opened for one connection: on ib, a protection domain of its own. Outlives its
// regions, offers and queue pairs. Only allocate is thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual Limits limits() const = 0;

  // Returns at least `bytes` of zeroed, page-aligned memory. Throws kResource with fitting advice
  // (locked-memory limit).
  virtual std::unique_ptr<MemoryRegion> allocate(std::size_t bytes, unsigned access) = 0;

  // Sets roughly how long a peer without power or path goes unnoticed, for queue pairs made from
  // now on. Does nothing where the peer is a process of the same host.
  virtual void set_peer_timeout(std::chrono::milliseconds /*timeout*/) {}

  // `local_address`: the numeric address at which the peer reached this side, for devices with
  // routes.
  virtual std::unique_ptr<Offer> offer(const QueueDepths& depths,
                                       const std::string& local_address) = 0;
  // Connects to the device whose Offer gave `blob`, which comes from the peer and may be any bytes.
  // Blocks; throws kTimeout at the deadline.
  virtual std::unique_ptr<QueuePair> connect(std::span<const std::byte> blob,
                                             const QueueDepths& depths, Deadline deadline) = 0;
};

}  // namespace leat::detail
