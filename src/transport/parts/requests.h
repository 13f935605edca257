// Requests that several transports post alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "verbs/device.h"

namespace leat::detail {

// Posts so many. Throws kSystem if the queue pair has no room for them.
void post_all_receives(QueuePair& queue_pair, std::size_t count);

// An inlined, unsignaled write of one aligned word into the peer's memory, which a device moves
// whole. `word` must live until it is posted.
inline SendRequest write_of_word(std::uint64_t& word, std::uint64_t remote_address,
                                 std::uint32_t remote_key) {
  SendRequest request;
  request.opcode = Opcode::kWrite;
  request.signaled = false;
  request.inlined = true;
  request.local = &word;
  request.bytes = sizeof word;
  request.remote_address = remote_address;
  request.remote_key = remote_key;
  return request;
}

// Posts such a write. False: there is no room in the send queue.
inline bool post_word(QueuePair& queue_pair, std::uint64_t remote_address, std::uint32_t remote_key,
                      std::uint64_t word) noexcept {
  const SendRequest request = write_of_word(word, remote_address, remote_key);
  return queue_pair.post_send({&request, 1}) != 0;
}

// An inlined, unsignaled immediate without bytes, which names no place: `peer` is where it is
// allowed to go.
inline SendRequest bare_immediate(std::uint32_t immediate, const RemoteRegion& peer) {
  SendRequest request;
  request.opcode = Opcode::kWriteWithImmediate;
  request.signaled = false;
  request.inlined = true;
  request.immediate = immediate;
  request.remote_address = peer.address;
  request.remote_key = peer.key;
  return request;
}

// "sending failed: WHY (WHERE)".
std::string failure(const char* what, CompletionStatus why, const QueuePair& where);

}  // namespace leat::detail
