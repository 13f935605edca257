// What a connection counted since it was made. Always on.
#pragma once

#include <cstdint>

namespace leat {

// A snapshot; values of the two directions may be some messages apart while threads are busy.
struct Stats {
  std::uint64_t sent_bytes = 0;  // payload, without headers
  std::uint64_t sent_messages = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t received_messages = 0;
  std::uint64_t rounds = 0;          // times the direction changed from receiving to sending
  std::uint64_t flushes = 0;         // calls of flush()
  std::uint64_t inline_sends = 0;    // messages that went without a copy into registered memory
  std::uint64_t credit_waits = 0;    // times a message found no room at the peer
  std::uint64_t credit_returns = 0;  // counters written to the peer, one for many messages
  std::uint64_t reassembled_messages = 0;  // received in pieces, because larger than in-place
  std::uint64_t planned_writes = 0;        // that carried messages of arrays, neighbours in one
  // Messages that met no posted receive at the peer; credits keep it 0. On ib the port counts them,
  // for all its connections together (rxe and mlx5 do; 0 elsewhere).
  std::uint64_t rnr_retries = 0;
  // Of the transports batched and confirm-each, 0 elsewhere.
  std::uint64_t slot_memory_bytes = 0;  // slots that this side has; fixed when connecting
  std::uint64_t send_requests = 0;      // posted: sends, writes, reads
  std::uint64_t receive_requests = 0;   // posted after the beginning
  std::uint64_t completions = 0;        // polled, of sends and of receives
  std::uint64_t confirm_reads = 0;      // batched: reads of the peer's bitmaps
  std::uint64_t slots_confirmed = 0;    // batched: what they found; small messages share a slot
  std::uint64_t doorbells = 0;          // batched: times an idle peer was rung
  std::uint64_t chunks = 0;             // chunked: posted; those of a new queue pair count again
  std::uint64_t resumes = 0;            // chunked: queue pairs made anew
  // Transports attested+X: records that were not accepted, and so not handed out.
  std::uint64_t refused_records = 0;
  std::uint64_t sleeps = 0;     // times a wait went to sleep in the kernel
  std::uint64_t fallbacks = 0;  // better devices given up while connecting

  // The sum over several connections.
  Stats& operator+=(const Stats& other) noexcept {
    sent_bytes += other.sent_bytes;
    sent_messages += other.sent_messages;
    received_bytes += other.received_bytes;
    received_messages += other.received_messages;
    rounds += other.rounds;
    flushes += other.flushes;
    inline_sends += other.inline_sends;
    credit_waits += other.credit_waits;
    credit_returns += other.credit_returns;
    reassembled_messages += other.reassembled_messages;
    planned_writes += other.planned_writes;
    rnr_retries += other.rnr_retries;
    slot_memory_bytes += other.slot_memory_bytes;
    send_requests += other.send_requests;
    receive_requests += other.receive_requests;
    completions += other.completions;
    confirm_reads += other.confirm_reads;
    slots_confirmed += other.slots_confirmed;
    doorbells += other.doorbells;
    chunks += other.chunks;
    resumes += other.resumes;
    refused_records += other.refused_records;
    sleeps += other.sleeps;
    fallbacks += other.fallbacks;
    return *this;
  }
};

}  // namespace leat
