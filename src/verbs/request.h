// The values of src/verbs/device.h: regions as a peer names them, requests, and completions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace leat::detail {

// What a peer may do with a memory region; the owner may always do everything.
enum Access : unsigned { kLocalOnly = 0, kRemoteRead = 1, kRemoteWrite = 2 };

// A memory region as the owner's peer names it. Addresses are the owner's; a request may name any
// part of [address, address + bytes).
struct RemoteRegion {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint32_t key = 0;
};

enum class Opcode : std::uint8_t {
  kWrite,               // into the peer's region; the peer gets no event
  kWriteWithImmediate,  // as kWrite, then consumes one posted receive of the peer
  kRead,                // out of the peer's region into `local`
};

// One entry of the send queue. Plain value; the queue pair copies it.
struct SendRequest {
  std::uint64_t id = 0;  // returned in the completion
  Opcode opcode = Opcode::kWrite;
  bool signaled = true;  // false: no completion on success, one on failure
  // Copy the bytes during post_send, from any memory; at most Limits::max_inline_bytes.
  bool inlined = false;
  bool fenced = false;    // begin, as do all later requests, only when all earlier reads are over
  void* local = nullptr;  // source, or destination of kRead; the caller's again after completion
  std::size_t bytes = 0;  // 0 is allowed
  std::uint32_t local_key = 0;  // the region of `local`; unused if inlined or bytes == 0
  std::uint64_t remote_address = 0;
  std::uint32_t remote_key = 0;
  std::uint32_t immediate = 0;  // of kWriteWithImmediate; arrives in host order
};

enum class CompletionStatus : std::uint8_t {
  kSuccess,
  kRemoteAccess,  // outside the region, wrong key, or the peer has not granted the permission
  kLocalAccess,   // the same for this side's memory
  kLength,        // more bytes than the device takes
  kPeerGone,      // the peer is dead or unreachable
  kFlushed,       // the queue pair was in error before this request ran
  kOther,
};
const char* to_string(CompletionStatus status);

enum class CompletionKind : std::uint8_t {
  kSendDone,   // of poll_sends: a write or read
  kImmediate,  // of poll_receives: a kWriteWithImmediate, or a receive that failed
  kStray,      // of poll_receives: something that no queue pair of leat sends
};

struct Completion {
  std::uint64_t id = 0;  // of poll_sends: the request's
  CompletionStatus status = CompletionStatus::kSuccess;
  CompletionKind kind = CompletionKind::kSendDone;
  std::uint32_t immediate = 0;
  // Bytes moved. The number comes from the peer: check it before using it as an index.
  std::size_t bytes = 0;
  // If not null, the bytes of a small write, which came with the completion as hardware scatters
  // them: the same as in memory, but nearer. What went by Arrivals is here alone. Valid until
  // the next poll_receives; the memory behind is that of a longest such write.
  const std::byte* payload = nullptr;
};

}  // namespace leat::detail
