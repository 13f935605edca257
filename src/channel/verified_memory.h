// The memory that two sides offer each other beside the messages of a transport attested+X:
// leat/remote_memory.h without blocking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "leat/remote_memory.h"
#include "transport/attested/attested.h"
#include "transport/parts/remote_reads.h"

namespace leat::detail {

// No call blocks, but publish() and judge() ask the attestor, and wait for a leat-attestd. Threads:
// one on the send side, one on the receive side, as for Transport.
class VerifiedMemory {
 public:
  // The transport must outlive this object. Throws kUnavailable to publish where the transport has
  // no reads, kResource.
  VerifiedMemory(AttestedTransport& transport, Context context,
                 const trusted::RemoteMemoryOptions& options);

  // --- beginning: both once, until they have returned true, before the others
  // Sends where our memory is.
  bool try_describe();
  // Takes the peer's description, which may be any bytes. Throws kProtocol, kPeerDied.
  bool try_take_description();

  Context context() const { return context_; }  // context of writes

  // --- send side
  // False: no room, call again with the same. Throws kInvalidArgument outside the peer's memory.
  bool try_write(std::uint64_t offset, std::span<const std::byte> bytes);
  // As RemoteMemory::publish.
  std::uint64_t publish(std::uint64_t offset, std::span<const std::byte> bytes);
  // Prepares reads of `bytes` bytes at `offset`. Returns false if an earlier read is not over; then
  // call again. Throws kInvalidArgument outside of what the peer published, kUnavailable,
  // kTooLarge.
  bool try_prepare_read(std::uint64_t offset, std::size_t bytes);
  // Begins the prepared read. Returns false if there is no room; then call again.
  bool try_read() { return reads_->try_read(read_from_, *landing_); }
  bool try_finish_read() { return reads_->try_finish_read(); }
  // Judges what was read: on kOk sets `bytes` and `floor`, otherwise returns the reason to reject
  // it.
  trusted::Verdict judge(std::span<std::byte> bytes, std::uint64_t& floor);

  // --- receive side
  enum class Taken { kNothing, kWrite, kEnd };
  // Puts the next write in place and sets `changed` to that place. Throws kProtocol for a write
  // outside the memory.
  Taken take(std::span<const std::byte>& changed);
  std::span<const std::byte> memory() const { return memory_; }

  std::uint64_t peer_memory_bytes() const { return peer_memory_bytes_; }
  std::uint64_t peer_published_bytes() const { return peer_published_.bytes; }

 private:
  AttestedTransport& transport_;
  RemoteReads* const reads_;  // null: the transport has no reads
  const Context context_;
  const std::size_t published_bytes_;
  MemoryRegion* published_ = nullptr;      // owned by the transport
  std::unique_ptr<MemoryRegion> landing_;  // reads arrive there
  RemoteRegion peer_published_;
  RemoteRegion read_from_;
  std::uint64_t peer_memory_bytes_ = 0;

  std::vector<std::byte> memory_;
  std::string broken_;  // receive side: why no further write is taken
};

}  // namespace leat::detail
