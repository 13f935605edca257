// One-sided memory between two sides that attest (TNIC, ASPLOS 2025, table 2): rem_write and
// rem_read. docs/transports/attested.md says how it is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "leat/channel.h"
#include "leat/export.h"
#include "leat/trusted/attestation.h"

namespace leat::trusted {

// This side's, in bytes.
struct RemoteMemoryOptions {
  std::size_t memory_bytes = 0;     // that the peer writes to
  std::size_t published_bytes = 0;  // that the peer reads; needs attested+ring or attested+planned
  unsigned context = 15;            // given to writes, no messages go there; the same at both sides
};

// A channel of a transport attested+X, and memory that each side has for the other.
//
// Written memory: the peer's write arrives as an attested record in a staging place. poll() or
// wait() verifies a copy of it and only then puts its bytes where they belong, so memory() changes
// in those calls only, and by nobody but the peer, in the order of its writes. What does not verify
// changes nothing and is counted (Stats::refused_records).
//
// Published memory: publish() puts an attested record there, and read() fetches it by an RDMA read,
// without any work of the peer's program, and verifies it. Nobody can change what is published, but
// who controls the peer's host can show an older record: `floor` tells that.
//
// Owner: whoever constructed it; move-only; owns the channel. Threads: one sends (write, publish,
// read), another may receive (poll, wait), as for Channel. The destructor closes the channel.
// Errors: leat::Error as for Channel. kInvalidArgument for a place outside of the memory, with
// nothing done; kProtocol for a peer that writes outside, whose write changed nothing: no later one
// is taken.
class LEAT_EXPORT RemoteMemory {
 public:
  // Blocks until the peer has done the same. Throws kInvalidArgument for a channel of another
  // transport or another context than 0 to 15; kUnavailable to publish where no reads go; kProtocol
  // for a peer that tells no sense of its memory; kResource.
  RemoteMemory(Channel channel, const RemoteMemoryOptions& options);
  RemoteMemory(RemoteMemory&&) noexcept;
  RemoteMemory& operator=(RemoteMemory&&) noexcept;
  ~RemoteMemory();

  // Writes to the peer's memory. Blocks while the peer has no room; the bytes are the caller's
  // again on return. No bytes: a write that only tells.
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  // The same without blocking; after false call again with the same.
  [[nodiscard]] bool try_write(std::uint64_t offset, std::span<const std::byte> bytes);

  // Puts the peer's next write into its place and gives the part of memory() that it changed;
  // blocks. No value: the peer has ended (Channel::shutdown).
  std::optional<std::span<const std::byte>> wait();
  // The same without blocking; no value: nothing now, or the end.
  std::optional<std::span<const std::byte>> poll();
  std::span<const std::byte> memory() const noexcept;

  // Publishes bytes at `offset`, where they take kRecordOverheadBytes more. Returns the record's
  // counter, which rises with each: tell it to who must not read anything older.
  std::uint64_t publish(std::uint64_t offset, std::span<const std::byte> bytes);
  // Reads what the peer published at `offset`, exactly bytes.size(); blocks for the read only. kOk:
  // `bytes` has it, and `floor` is its counter. Otherwise `bytes` is as before. kCounter: older
  // than `floor`. kFormat: nothing was published there. kLength, kSession, kDevice, kMac: no record
  // for this place and of this size that the peer attested. A record that the peer is just
  // replacing is read again, for at most 100 milliseconds.
  Verdict read(std::uint64_t offset, std::span<std::byte> bytes, std::uint64_t& floor);

  // Of the peer.
  std::uint64_t peer_memory_bytes() const noexcept;
  std::uint64_t peer_published_bytes() const noexcept;

  // For messages in the other contexts, stats, shutdown.
  Channel& channel() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace leat::trusted
