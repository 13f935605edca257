// The memory that two sides have for each other beside the messages of a transport attested+X:
// leat/trusted/remote_memory.h without its blocking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "leat/trusted/remote_memory.h"
#include "transport/attested.h"
#include "transport/remote_reads.h"

namespace leat::detail {

// No call blocks. Threads: one on the send side, one on the receive side, as for Transport.
class VerifiedMemory {
 public:
  // The transport must outlive it. Throws kUnavailable to publish where no reads go, kResource.
  VerifiedMemory(AttestedTransport& transport, Context context,
                 const trusted::RemoteMemoryOptions& options);

  // --- beginning: both once, until they have returned true, before the others
  // Sends where our memory is.
  bool try_describe();
  // Takes the peer's, which may be anything. Throws kProtocol, kPeerDied.
  bool try_take_description();

  // --- send side
  // False: no room, call again with the same. Throws kInvalidArgument outside the peer's memory.
  bool try_write(std::uint64_t offset, std::span<const std::byte> bytes);
  // As RemoteMemory::publish.
  std::uint64_t publish(std::uint64_t offset, std::span<const std::byte> bytes);
  // Makes ready for reads of `bytes` from `offset` on. False: an earlier read is not over, call
  // again. Throws kInvalidArgument outside of what the peer published, kUnavailable, kTooLarge.
  bool try_prepare_read(std::uint64_t offset, std::size_t bytes);
  // Begins to read what was prepared. False: no room, call again.
  bool try_read() { return reads_->try_read(read_from_, *landing_); }
  bool try_finish_read() { return reads_->try_finish_read(); }
  // What came of it: kOk, then `bytes` and `floor` are set; or why it is not to be believed.
  trusted::Verdict judge(std::span<std::byte> bytes, std::uint64_t& floor);

  // --- receive side
  enum class Taken { kNothing, kWrite, kEnd };
  // Puts the next write into its place, which is then `changed`. Throws kProtocol for one outside.
  Taken take(std::span<const std::byte>& changed);
  std::span<const std::byte> memory() const { return memory_; }

  std::uint64_t peer_memory_bytes() const { return peer_memory_bytes_; }
  std::uint64_t peer_published_bytes() const { return peer_published_.bytes; }

 private:
  AttestedTransport& transport_;
  RemoteReads* const reads_;  // null: none go beside this transport
  const Context context_;
  const std::size_t published_bytes_;
  MemoryRegion* published_ = nullptr;      // the transport's
  std::unique_ptr<MemoryRegion> landing_;  // where reads go to
  RemoteRegion peer_published_;
  RemoteRegion read_from_;
  std::uint64_t peer_memory_bytes_ = 0;

  std::vector<std::byte> memory_;
  std::string broken_;  // receive side: why no more writes are taken
};

}  // namespace leat::detail
