// What the processes that hold one end of a carried connection share among themselves: its locks,
// and what they know of the connection. It lies in memory that the peer never gets, so nothing that
// is waited for, and nothing that is believed, is the peer's to write.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "posix/tcp_state.h"

namespace leat::preload {

// The id of this thread; forget_thread_id() after a fork, in the child.
std::uint32_t thread_id() noexcept;
void forget_thread_id() noexcept;
// Of this process; forget_process_id() after a fork, in the child.
std::uint32_t process_id() noexcept;
void forget_process_id() noexcept;

// The program is about to leave frames of its stack by longjmp(), and with them, perhaps, calls
// that hold a lock.
void note_jump() noexcept;

// A lock of threads of any process. The kernel takes it away from a holder that dies, in any pid
// namespace, also before its parent has waited for it (a robust mutex).
class EndLock {
 public:
  void begin() noexcept;  // of new memory
  // False: this thread holds it already, and is the handler of a signal that came meanwhile.
  bool lock() noexcept;
  // False: another holds it, or this thread, as above.
  bool try_lock() noexcept;
  void unlock() noexcept;
  bool held_here() const noexcept;

 private:
  bool take_over() noexcept;
  bool finish(int error) noexcept;

  pthread_mutex_t mutex_;
  // Relaxed, both: a thread looks for what it wrote itself.
  std::atomic<std::uint32_t> holder_;
  std::atomic<std::uint32_t> jumps_;  // that the holder had noted then
};

using posix::kEnded;
using posix::kPeerGone;
using posix::kReadShut;
using posix::kReset;
using posix::kWriteShut;
// Beside TCP's own flags.
inline constexpr std::uint32_t kNoDelay = 16;  // what the program set; the kernel's own is on
inline constexpr std::uint32_t kCork = 32;
inline constexpr std::uint32_t kBellShut = 64;    // shut to wake a sender: see wake_senders()
inline constexpr std::uint32_t kDissolved = 256;  // connect() to no address has begun
inline constexpr std::uint32_t kBroken = 512;     // reset here, because of a breach by the peer

struct EndState {
  alignas(64) EndLock send_lock;
  alignas(64) EndLock receive_lock;
  posix::TcpState tcp;
  std::atomic<std::uint32_t> full;       // how often a sender found no room
  std::atomic<std::uint32_t> shutdowns;  // how often the program called shutdown()

  // Of all sleepers at this end, one listens to the doorbell and passes it on.
  alignas(64) EndLock listener;
  std::atomic<std::uint32_t> turn;  // futex of the others
  std::atomic<std::uint32_t> others;
  std::atomic<std::uint32_t> senders_asleep;
  std::atomic<std::uint32_t> strange;  // how many bytes that are no doorbells the kernel gave
  // SO_COOKIE of the socket, by which a program that was executed finds its state again.
  std::atomic<std::uint64_t> cookie;

  void begin() noexcept;
};

// A counted hold on one. Empty: there was no memory.
struct EndArena;
struct EndHold {
  EndState* state = nullptr;
  EndArena* arena = nullptr;
};

// Returns new state, which a forked child gets by itself. Async-signal-safe, like what follows.
EndHold new_end() noexcept;
// `shared`: another process may have it too, so that nobody ever gets it again.
void release_end(EndHold hold, bool shared) noexcept;
// The hidden descriptor of the memory that it lies in, to pass on with the connection; -1 if there
// was no number for it.
int memfd_of(const EndHold& hold) noexcept;

// Whether a descriptor is such memory of another process.
bool is_end_memory(int fd) noexcept;
// That memory, in a process that got it together with its connections.
class AdoptedEnds {
 public:
  // Takes over the hidden descriptor.
  explicit AdoptedEnds(int memfd) noexcept;
  ~AdoptedEnds();
  AdoptedEnds(const AdoptedEnds&) = delete;
  AdoptedEnds& operator=(const AdoptedEnds&) = delete;
  // Empty: it is not there.
  EndHold find(std::uint64_t cookie) const noexcept;

 private:
  EndArena* arena_ = nullptr;
};

}  // namespace leat::preload
