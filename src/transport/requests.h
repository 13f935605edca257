// Requests that several transports post alike.
#pragma once

#include <cstdint>
#include <span>

#include "verbs/device.h"

namespace leat::detail {

// Posts all of them, in as many calls as it takes. Throws kSystem if the queue pair takes no more.
void post_receives(QueuePair& queue_pair, std::span<const ReceiveRequest> receives);

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

}  // namespace leat::detail
