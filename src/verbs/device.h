// The verbs that leat stands on: devices, memory regions and reliable connected queue pairs, with
// the names and the promises of the verbs specification. Two devices implement them: `ib`
// (rdma-core) and `shm` (the processes of one host). tests/verbs holds one test per sentence of
// this contract, run on every device, between threads and between processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"

namespace leat::detail {

// What a peer may do with a memory region; the owner may always do everything.
enum Access : unsigned { kLocalOnly = 0, kRemoteRead = 1, kRemoteWrite = 2 };

// A memory region as its owner's peer names it. Addresses are the owner's own; a request may name
// any part of [address, address + bytes).
struct RemoteRegion {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint32_t key = 0;
};

enum class Opcode : std::uint8_t {
  kSend,                // into the peer's next posted receive
  kWrite,               // into the peer's region; the peer gets no event
  kWriteWithImmediate,  // as kWrite, then consumes one posted receive of the peer
  kRead,                // out of the peer's region into `local`
};

// One entry of the send queue. Plain value; the queue pair copies it.
struct SendRequest {
  std::uint64_t id = 0;  // comes back in the completion
  Opcode opcode = Opcode::kWrite;
  bool signaled = true;   // false: no completion on success, one on failure
  bool inlined = false;   // take the bytes during post_send, from any memory; bytes must be at most
                          // Limits::max_inline_bytes
  void* local = nullptr;  // source, or for kRead the destination; ours again after completion
  std::size_t bytes = 0;  // 0 is allowed
  std::uint32_t local_key = 0;  // of the region that holds `local`; unused if inlined or bytes == 0
  std::uint64_t remote_address = 0;  // writes and reads
  std::uint32_t remote_key = 0;
  std::uint32_t immediate = 0;  // kWriteWithImmediate; arrives as it is, in host order
};

// One entry of the receive queue. `local` takes the bytes of a kSend, in memory of Device::allocate
// with kRemoteWrite, as on some devices it is the sender who stores them. Immediates use none of it
// and may be received with bytes == 0.
struct ReceiveRequest {
  std::uint64_t id = 0;
  void* local = nullptr;
  std::size_t bytes = 0;
  std::uint32_t local_key = 0;
};

enum class CompletionStatus : std::uint8_t {
  kSuccess,
  kRemoteAccess,  // outside the region, wrong key, or permission missing at the peer
  kLocalAccess,   // the same for our own memory
  kLength,        // a send larger than the posted receive
  kPeerGone,      // the peer is dead or unreachable
  kFlushed,       // the queue pair was in error before this request ran
  kOther,
};
const char* to_string(CompletionStatus status);

enum class CompletionKind : std::uint8_t {
  kSendDone,   // of poll_sends: a send, write or read
  kReceived,   // of poll_receives: a kSend arrived
  kImmediate,  // of poll_receives: a kWriteWithImmediate arrived
};

struct Completion {
  std::uint64_t id = 0;
  CompletionStatus status = CompletionStatus::kSuccess;
  CompletionKind kind = CompletionKind::kSendDone;
  std::uint32_t immediate = 0;
  // Bytes moved. Comes from the peer: check it before you index with it.
  std::size_t bytes = 0;
  // Not null if the bytes of a small write came with the completion, as hardware scatters them:
  // the same bytes as in memory, nearer, valid until the next poll_receives.
  const std::byte* payload = nullptr;
};

struct Limits {
  std::size_t max_inline_bytes = 0;
  std::size_t max_send_requests = 0;     // outstanding on one queue pair
  std::size_t max_receive_requests = 0;  // posted on one queue pair
  std::size_t max_request_bytes = 0;     // one request
  bool pins_memory = false;              // allocated memory counts against the locked-memory limit
  // A request has run when post_send returns, and regions are memory that both processes address:
  // what one stores at peer_memory(), and then into a region of its own, by a release store, the
  // other loads in that order. So bytes can be moved and words read without any request.
  bool shares_memory = false;
};

struct DeviceInfo {
  std::string name;         // as the user names it: "shm", "ib:mlx5_0"
  bool usable = false;      // a queue pair could be made
  std::string why_not;      // if not usable: what failed and what to do
  std::string description;  // port, link layer, MTU, GID; for logs and leat-info
  unsigned mtu_bytes = 0;   // of the path; 0 where there is none
};

// Memory that requests may name. Owned by whoever holds it; must not outlive its device.
// Destroying a region takes its key back: later requests of the peer that name it fail.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  virtual std::span<std::byte> memory() const = 0;
  virtual std::uint32_t local_key() const = 0;
  virtual RemoteRegion remote() const = 0;
  // Says that this part will be written all over: a device that takes memory only when it is
  // touched may take this part now, in larger pages. One thread at a time.
  virtual void prepare(std::size_t /*offset*/, std::size_t /*bytes*/) noexcept {}
};

enum class Side { kSend, kReceive };

// A reliable connected queue pair.
//
// Order: sends complete in post order. The bytes of a write are visible at the peer before the
// completion of a later send or immediate of the same queue pair. A read returns bytes no older
// than its post, and comes after the earlier writes of the same queue pair: when its bytes are here
// theirs are visible at the peer. Aligned 8-byte words are written and read whole.
// Failure: the first request that fails completes with its reason, the queue pair is then in error
// and everything else, also what is posted later, completes as kFlushed; the target's memory is
// untouched by the request that failed. A dead peer fails requests within the timeout, with
// kPeerGone or, where its memory goes before it, kRemoteAccess; and flushes posted receives.
// Destroying with work pending is safe.
// Threads: one thread sends (post_send, poll_sends, arm(kSend)) while another receives
// (post_receive, poll_receives, arm(kReceive)); the receiving thread may also post_send
// unsignaled, inlined writes, which is how credits return, and unsignaled reads, whose bytes it
// sees come. No call blocks.
class QueuePair {
 public:
  virtual ~QueuePair() = default;

  // Both return how many requests, from the first, were accepted. Fewer than given means that there
  // is no room now: send queue full or, on a device that runs requests as they are posted, no
  // receive posted at the peer. Try again after a completion, or sleep by arm(kSend).
  virtual std::size_t post_send(std::span<const SendRequest> requests) = 0;
  virtual std::size_t post_receive(std::span<const ReceiveRequest> requests) = 0;

  // Return how many completions were stored, 0 if there is none now.
  virtual std::size_t poll_sends(std::span<Completion> completions) = 0;
  virtual std::size_t poll_receives(std::span<Completion> completions) = 0;

  // Consumes past events and asks for one at the next completion of that side (or, on the send
  // side, when there is room again). Poll after arm() until there is nothing, then wait until
  // event_fd(side) is readable: what was polled meanwhile does not take the wish for an event back.
  // Events may be spurious.
  virtual void arm(Side side) = 0;
  // An event for the peer's send side, if armed: there is room of which no completion tells.
  // Nothing where processes share no memory, so who waits for such room looks too. Receive side.
  virtual void wake_sender() {}
  // Owned by the queue pair; stays the same for its life.
  virtual int event_fd(Side side) const = 0;

  // Where this process can store into the peer's region, or null if the device cannot do that or
  // the access is not allowed. A write whose `local` is that address moves no byte: fill in place,
  // then post. Valid while the peer's region lives and this queue pair does.
  virtual std::byte* peer_memory(const RemoteRegion& part) = 0;

  // How often a request had to wait because the peer had no receive posted. On ib as its port
  // counts them, of all connections together, since this one was made; 0 if the device does not
  // count. Any thread; may be a system call.
  virtual std::uint64_t rnr_retries() const = 0;

  // For logs and errors: device, port, addresses, state.
  virtual std::string describe() const = 0;
};

struct QueueDepths {
  std::size_t send_requests = 256;
  std::size_t receive_requests = 1024;
};

// The passive half of a connection that waits for its peer.
class Offer {
 public:
  virtual ~Offer() = default;
  // For the peer's Device::connect, at most kMaxOfferBytes; secret, as it lets its holder connect.
  virtual std::vector<std::byte> blob() const = 0;
  // Blocks until the peer came. Strangers are turned away and do not end the wait. Throws kTimeout
  // at the deadline, kPeerDied once `lifeline` (a socket, or -1) is readable or hung up.
  virtual std::unique_ptr<QueuePair> accept(Deadline deadline, int lifeline) = 0;
};
inline constexpr std::size_t kMaxOfferBytes = 256;

// One device, opened for one connection: on ib, a protection domain of its own. The device outlives
// its regions, offers and queue pairs. Not thread-safe but for allocate and register_local.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual Limits limits() const = 0;

  // Zeroed memory of at least `bytes`, page-aligned. Throws kResource with the advice that fits
  // (locked-memory limit).
  virtual std::unique_ptr<MemoryRegion> allocate(std::size_t bytes, unsigned access) = 0;
  // The caller's memory as source of sends and writes. It must outlive the region.
  virtual std::unique_ptr<MemoryRegion> register_local(std::span<std::byte> memory) = 0;

  // `local_address`: the address at which the peer reached us (numeric), for devices with routes.
  virtual std::unique_ptr<Offer> offer(const QueueDepths& depths,
                                       const std::string& local_address) = 0;
  // Connects to the device whose Offer gave `blob`. Blocks; throws kTimeout at the deadline.
  // The blob comes from the peer and may be anything.
  virtual std::unique_ptr<QueuePair> connect(std::span<const std::byte> blob,
                                             const QueueDepths& depths, Deadline deadline) = 0;
};

}  // namespace leat::detail
