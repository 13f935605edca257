// The memory of one carried connection, shared by the processes of both ends: two rings of bytes
// and what each end shows to the other. A sealed memfd, which follows the connection through dup,
// fork and exec. The peer may write anything here at any time: what is read is checked before it is
// used as a position, nothing here is a pointer, and nothing here is waited for (end_state.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "preload/address.h"

namespace leat::preload {

inline constexpr std::uint32_t kMemoryMagic = 0x7461656c;
inline constexpr std::uint32_t kMemoryVersion = 7;
inline constexpr std::size_t kRingBytes = std::size_t{1} << 20;
inline constexpr std::size_t kHeaderBytes = 4096;
inline constexpr std::size_t kMemoryBytes = kHeaderBytes + 2 * kRingBytes;

// What is sent over TCP to wake the peer.
inline constexpr char kRing = '!';

// A bell's word: kSleeper for each that sleeps, and kRung since it was rung for them.
inline constexpr std::uint32_t kRung = 1;
inline constexpr std::uint32_t kSleeper = 2;

// One direction. Positions count bytes since the beginning and only grow.
struct Direction {
  // The producer's line. tail: release by the producer, acquire by the consumer, which then sees
  // the bytes before it. head_seen is the producer's own: the head as last looked at.
  alignas(64) std::atomic<std::uint64_t> tail;
  std::atomic<std::uint64_t> head_seen;
  std::atomic<std::uint32_t> ended;  // nothing follows; release after the last tail

  // The consumer's line. head: release by the consumer, whose reads are over, acquire by the
  // producer before it overwrites. tail_seen is the consumer's own.
  alignas(64) std::atomic<std::uint64_t> head;
  std::atomic<std::uint64_t> tail_seen;

  // A sleeper first adds itself to the count and clears kRung, passes a full barrier, and looks
  // once more. The publisher passes a full barrier after it has published; if there is a sleeper
  // and kRung is clear, it rings: one byte on TCP. So either the sleeper sees what was published,
  // or the publisher sees the sleeper. A thread that has woken takes itself off the count, so that
  // the bell rings only for sleepers. A sleeper that was killed stays counted, which costs bells
  // and nothing else.
  alignas(64) std::atomic<std::uint32_t> data_bell;  // consumers sleep
  std::atomic<std::uint32_t>
      room_bell;  // producers; at rest kRung, and also without it if put() found no room
};

// How the last process that closed its descriptor left.
enum CloseNote : std::uint32_t {
  kNotClosed = 0,
  kClosedInOrder = 1,
  kClosedUnread = 2,
  kClosedInUse = 3,  // in order, but a thread is still in a call, at whose end the kernel closes
  kSentInVain = 4,   // has not closed, but sent to one that has shut down both ways: both are reset
  kClosedUrgent = 5,  // an urgent byte unread, which the kernel alone has: as kClosedUnread
};

// What an end shows to the peer. The processes of that end write it; the peer may write it too, so
// nothing here is waited for, and a lie in it harms only the connection itself.
struct Side {
  alignas(64) std::atomic<std::uint32_t> note;  // CloseNote
  std::atomic<std::uint32_t> aborts;            // SO_LINGER with time 0: closing resets
  std::atomic<std::uint32_t> shut;              // kReadShut and kWriteShut (end_state.h)
  std::atomic<std::uint32_t> urgents;           // how many urgent bytes the kernel carried
  // SO_COOKIE, by which a process finds this memory that gets the socket from another.
  std::atomic<std::uint64_t> cookie;

  // Counted for leat-stat, relaxed.
  alignas(64) std::atomic<std::uint64_t> sent_bytes;
  std::atomic<std::uint64_t> received_bytes;
  std::atomic<std::uint64_t> sends;
  std::atomic<std::uint64_t> receives;
  std::atomic<std::uint64_t> stalls;  // a send found no room
  std::atomic<std::uint64_t> sleeps;
  std::atomic<std::uint64_t> rings;  // of the peer's bell
  std::atomic<std::uint32_t> pid;    // the process that used it last
};

struct SharedMemory {
  // Of memory in which all else is zero.
  void begin(const Address& from, const Address& to) noexcept {
    magic = kMemoryMagic;
    version = kMemoryVersion;
    connector = from;
    acceptor = to;
  }
  bool is_ours() const noexcept { return magic == kMemoryMagic && version == kMemoryVersion; }

  std::uint32_t magic;
  std::uint32_t version;
  Address connector;
  Address acceptor;
  // The sizes of buffers that the program of each side has set, as the kernel tells them; 0: none.
  // Relaxed: a sender that finds less room than there is now waits, and is woken as for room.
  std::atomic<std::uint32_t> send_buffer[2];
  std::atomic<std::uint32_t> receive_buffer[2];
  Side sides[2];            // 0 connected, 1 accepted
  Direction directions[2];  // 0 is what side 0 sends
};
static_assert(sizeof(SharedMemory) <= kHeaderBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// New memory, mapped, all of it zero, and its memfd; null if the system has none left.
SharedMemory* new_memory(int& memfd) noexcept;
// The same for anything that processes share: it can neither shrink nor grow.
void* new_sealed_memory(const char* name, std::size_t bytes, int& memfd) noexcept;
// Whether a descriptor is memory that cannot shrink: reading it gives no bus error.
bool is_sealed(int fd) noexcept;

}  // namespace leat::preload
