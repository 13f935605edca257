// The counters of a connection. They are always on.
#pragma once

#include <cstdint>

#include "leat/cxx20.h"

namespace leat {

// A snapshot. While threads are busy the two directions may differ by some messages.
struct Stats {
  std::uint64_t sent_bytes = 0;  // payload, without headers
  std::uint64_t sent_messages = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t received_messages = 0;
  std::uint64_t rounds = 0;          // times the direction changed from receiving to sending
  std::uint64_t flushes = 0;         // calls of flush()
  std::uint64_t inline_sends = 0;    // messages sent inline, without a copy into registered memory
  std::uint64_t credit_waits = 0;    // times that a message found no room at the peer
  std::uint64_t credit_returns = 0;  // counters written to the peer, each for many messages
  std::uint64_t reassembled_messages = 0;  // received in pieces, because larger than in-place
  std::uint64_t planned_writes = 0;        // writes of message arrays; neighbours share one
  // Messages that found no posted receive at the peer; credits keep this at 0. On ib the port
  // counts them for all its connections together (rxe and mlx5 do; others report 0).
  std::uint64_t rnr_retries = 0;
  // Transports batched and confirm-each; 0 for others.
  std::uint64_t slot_memory_bytes = 0;  // this side's slots; fixed when connecting
  std::uint64_t send_requests = 0;      // posted: sends, writes, reads
  std::uint64_t receive_requests = 0;   // posted after connecting
  std::uint64_t completions = 0;        // polled: of sends and of receives
  std::uint64_t confirm_reads = 0;      // batched: reads of the peer's bitmaps
  std::uint64_t slots_confirmed =
      0;                        // batched: full slots that they found; small messages share one
  std::uint64_t doorbells = 0;  // batched: times that an idle peer was notified
  std::uint64_t chunks = 0;     // chunked: chunks posted, including repetitions on a new queue pair
  std::uint64_t resumes = 0;    // chunked: queue pairs that were re-established
  // Transports attested+X and sealed+X: records that did not verify and so were not handed out.
  std::uint64_t refused_records = 0;
  std::uint64_t sleeps = 0;     // times that a wait slept in the kernel
  std::uint64_t fallbacks = 0;  // better devices that were given up while connecting

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
