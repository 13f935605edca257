// What TCP keeps of one end of a connection besides its bytes, and what it answers by that.
#pragma once

#include <netinet/tcp.h>
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace leat::posix {

// Flags of a TcpState. Bits 4 to 6, and from 8 on, belong to its owner.
inline constexpr std::uint32_t kReadShut = 1;   // shutdown(SHUT_RD)
inline constexpr std::uint32_t kWriteShut = 2;  // shutdown(SHUT_WR)
inline constexpr std::uint32_t kPeerGone = 4;   // its socket is closed; comes with one of those:
inline constexpr std::uint32_t kReset = 8;      // as after a RST: TCP's state CLOSE
inline constexpr std::uint32_t kEnded = 128;    // its stream ended in order, before any reset

// Zero at first. It may lie in memory that processes share; any thread of any of them, any time.
// `ended`: the peer has said that its stream ends, where that is known elsewhere than by kEnded.
struct TcpState {
  std::atomic<std::uint32_t> flags;
  std::atomic<std::int32_t> error;  // as SO_ERROR: told once

  // Acquire, with raise(): a thread that sees a flag sees what was stored before it.
  bool has(std::uint32_t wanted) const noexcept {
    return (flags.load(std::memory_order_acquire) & wanted) != 0;
  }
  // Returns what there was before. Release: after the error that comes with it.
  std::uint32_t raise(std::uint32_t more) noexcept {
    return flags.fetch_or(more, std::memory_order_acq_rel);
  }
  void fail(int with) noexcept { error.store(with, std::memory_order_release); }
  // Returns the error and clears it, as TCP reports it once. If this call has `begun` to transfer
  // bytes, it returns their number, so the error stays for the next call.
  int take_error(bool begun = false) noexcept {
    if (begun || error.load(std::memory_order_acquire) == 0)
      return error.load(std::memory_order_acquire);
    return error.exchange(0, std::memory_order_acq_rel);
  }

  // What a call gets that finds no bytes: 0 if more may come, 1 at the end, or -errno. After the
  // peer's end an error is left to a call that sends or asks.
  int receive_state(bool ended, bool begun) noexcept {
    if (ended || has(kEnded)) return 1;
    if (const int told = take_error(begun); told != 0) return -told;
    return has(kPeerGone | kReset | kReadShut) ? 1 : 0;
  }
  // What a call gets that sends: 0 if bytes go, 1 if they are dropped, because TCP takes them and
  // learns by a reset that nobody is there, or -errno.
  int send_state(bool begun) noexcept {
    if (const int told = take_error(begun); told != 0) return -told;
    if (has(kWriteShut | kReset)) return -EPIPE;
    return has(kPeerGone) ? 1 : 0;
  }
  // send_state() does not say 0.
  bool sending_ended() const noexcept { return has(kWriteShut | kPeerGone | kReset); }
  // Bytes were dropped, and the reset comes. False: it had come before.
  bool sent_to_nobody() noexcept {
    if ((raise(kReset | kEnded) & kReset) != 0) return false;
    fail(EPIPE);
    return true;
  }

  // The peer's socket is closed: `in_order` if its end came, then the reset, if there is an
  // `error`. In CLOSE_WAIT a reset is EPIPE; with both ends sent TCP is in CLOSE, where it hears
  // nothing, and it hears no second reset. Returns whether that changed the state.
  bool peer_gone(bool in_order, int with) noexcept {
    const bool ended = in_order || has(kEnded);
    if ((ended && has(kWriteShut)) || has(kReset)) with = 0;
    if (ended && with == ECONNRESET) with = EPIPE;
    if (with != 0) fail(with);
    const std::uint32_t more = (ended ? kEnded : 0U) | (with != 0 ? kReset : 0U);
    return (more & ~raise(more | kPeerGone)) != 0;
  }
  // connect() to no address. `over`: there was nothing left to reset.
  void dissolve(bool over) noexcept {
    if (!over) fail(ECONNRESET);
    raise(kPeerGone | kReset);
  }

  // TCP's state CLOSE.
  bool is_over(bool ended) const noexcept {
    return has(kReset) || ((ended || has(kEnded)) && has(kWriteShut));
  }
  // As in TCP_INFO. The other states last until the peer's kernel has acknowledged, which is at
  // once.
  int tcp_state(bool ended) const noexcept {
    if (is_over(ended)) return TCP_CLOSE;
    if (ended || has(kEnded)) return TCP_CLOSE_WAIT;
    return has(kWriteShut) ? TCP_FIN_WAIT2 : TCP_ESTABLISHED;
  }
  // What poll(2) says. `room` is called only if that decides about POLLOUT.
  template <typename Room>
  unsigned mask(bool ended, bool readable, const Room& room) const noexcept(noexcept(room())) {
    const std::uint32_t now = flags.load(std::memory_order_acquire);
    const bool end = ended || (now & (kEnded | kReadShut | kPeerGone | kReset)) != 0;
    unsigned mask = 0;
    if (end) mask |= POLLIN | POLLRDNORM | POLLRDHUP;
    if (readable) mask |= POLLIN | POLLRDNORM;
    if ((end && (now & kWriteShut) != 0) || (now & kReset) != 0) mask |= POLLHUP;
    if (error.load(std::memory_order_acquire) != 0) mask |= POLLERR;
    if ((now & (kWriteShut | kReset | kPeerGone)) != 0 || room()) mask |= POLLOUT | POLLWRNORM;
    return mask;
  }
};

}  // namespace leat::posix
