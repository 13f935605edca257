// One-sided memory between two sides that attest their writes: rem_write and rem_read of TNIC
// (ASPLOS 2025, table 2). docs/transports/attested.md describes the protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "leat/attest/attestation.h"
#include "leat/channel.h"
#include "leat/export.h"
#include "leat/held.h"

namespace leat::trusted {

// What this side provides, in bytes.
struct RemoteMemoryOptions {
  std::size_t memory_bytes = 0;     // the peer writes to it
  std::size_t published_bytes = 0;  // the peer reads it; needs attested+ring or attested+planned
  unsigned context = 15;            // carries the writes and no messages; equal on both sides
};

// A channel of a transport attested+X, with memory that each side offers to the other.
//
// Written memory: a write of the peer arrives as an attested record in a staging buffer. poll() and
// wait() verify a copy of it and only then put its bytes in place. So memory() changes in those
// calls only, by the peer's writes only, and in their order. A record that does not verify changes
// nothing and is counted (Stats::refused_records).
//
// Published memory: publish() stores an attested record there; the peer's read() fetches it by RDMA
// read, without any work of this side's program, and verifies it. Nobody can alter what is
// published, but an attacker that controls the publisher's host can present an older record;
// `floor` detects that.
//
// Owner: the caller that constructed it; move-only; owns the channel. Threads: as for Channel, one
// thread may send (write, publish, read) while another receives (poll, wait). The destructor closes
// the channel.
// Errors: leat::Error as for Channel. kInvalidArgument for a range outside the memory; nothing was
// done. kProtocol once the peer has written outside the memory: that write and all later ones
// change nothing.
class LEAT_EXPORT RemoteMemory {
 public:
  // Blocks until the peer has constructed its RemoteMemory. Throws kInvalidArgument if the channel
  // has another transport or if the context is above 15; kUnavailable if published_bytes is set and
  // the inner transport has no reads; kProtocol if the peer describes its memory wrongly;
  // kResource.
  RemoteMemory(Channel channel, const RemoteMemoryOptions& options);
  RemoteMemory(RemoteMemory&&) noexcept;
  RemoteMemory& operator=(RemoteMemory&&) noexcept;
  ~RemoteMemory();

  // Writes to the peer's memory at `offset`. Blocks while the peer has no room. On return the
  // caller may reuse the bytes. A write of no bytes changes nothing but wakes the peer's wait().
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  // The same without blocking. After false the caller must try the same write again.
  [[nodiscard]] bool try_write(std::uint64_t offset, std::span<const std::byte> bytes);

  // Puts the peer's next write in place and returns the part of memory() that it changed; blocks
  // until one arrives. Returns no value once the peer has ended (Channel::shutdown).
  std::optional<std::span<const std::byte>> wait();
  // The same without blocking: no value also if no write is there yet.
  std::optional<std::span<const std::byte>> poll();
  std::span<const std::byte> memory() const;

  // Publishes bytes at `offset`; there they take kRecordOverheadBytes more. Returns the record's
  // counter, which rises with each call: give it, as `floor`, to a reader that must not accept
  // anything older. Blocks until the attestor has answered. Throws kUnavailable if it refuses,
  // kTooLarge above its limit.
  std::uint64_t publish(std::uint64_t offset, std::span<const std::byte> bytes);
  // Reads exactly bytes.size() bytes that the peer published at `offset`; blocks for the RDMA read
  // and the attestor's answer only. On kOk `bytes` holds them and `floor` the record's counter;
  // otherwise both are unchanged. kCounter: the record is older than `floor`. kFormat: nothing was
  // published there. kUnavailable: the attestor does not answer. Any other verdict: what lies there
  // is not a record of this size and place that the peer attested. While the peer is replacing the
  // record, read() tries again for at most 100 milliseconds. Throws kTooLarge above what the device
  // reads at once.
  Verdict read(std::uint64_t offset, std::span<std::byte> bytes, std::uint64_t& floor);

  // What the peer provides, in bytes.
  std::uint64_t peer_memory_bytes() const;
  std::uint64_t peer_published_bytes() const;

  // The channel, for messages in the other contexts, stats and shutdown.
  Channel& channel();

 private:
  struct LEAT_HIDDEN State;
  leat::detail::Held<std::unique_ptr<State>> state_;
};

}  // namespace leat::trusted
