// What a handle of leat/c.h stands for: a TCP socket of the kernel's that may become, by leat's
// handshake, a connection or a listener of leat's.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/settings.h"
#include "capi/connecting.h"
#include "capi/pollable.h"
#include "capi/stream_end.h"
#include "channel/listener_core.h"

namespace leat::detail::c {

// The kernel's socket stays for the handle's whole life: it has the addresses and options, connects
// by TCP, and is the connection's lifeline then. It never blocks; whether the handle does is
// nonblocking(). The descriptors that the program has are an epoll set of what the handle waits
// for, so that poll(2) works on them (descriptors.h). Any thread. Results below 0 are -errno.
class Handle final : public Pollable {
 public:
  // `number` is the epoll set's descriptor, which the table of descriptors owns.
  Handle(Fd socket, int number, bool nonblocking);
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() override;

  // The connection; null unless connected.
  StreamEnd* connection();
  int bind(const sockaddr* address, socklen_t bytes) const;
  int listen(int backlog);
  // -EINPROGRESS if it has begun.
  int connect(const sockaddr* address, socklen_t bytes);
  // After -EINPROGRESS, once it is over.
  int connect_result();
  // The next newcomer, or null with -errno.
  std::unique_ptr<ChannelCore> accept(int& error);
  int shutdown(int how);
  // 0, or the errno that SO_ERROR tells, which reading clears.
  int take_error();

  // Why leat's handshake failed, 0 if it did not; told once, by any call.
  int handshake_error();

  void adopt(std::unique_ptr<ChannelCore> core);
  void adopt(std::unique_ptr<ListenerCore> listener);
  // leat watches idle connections for silent deaths of the peer's host only if the program wants
  // that, by SO_KEEPALIVE, as with TCP.
  struct Watch {
    int keep_alive = 0;
    int idle = 0;
    int interval = 0;
    int count = 0;
  };
  Watch watch() const;
  // While connecting(), when leat's own is in force: what the program wants after that.
  Watch wanted_watch();
  void want_watch(int Watch::*option, int value);
  void set_watch(const Watch& watch) const;

  unsigned mask(bool prepare) override;
  int fd() override;
  // The epoll set has another descriptor from now on; -1: none any more.
  void set_number(int number);
  bool waits_silently(unsigned events) override;
  std::chrono::microseconds spin() const override;
  void drain() override;
  posix::EdgeMarks marks() override;

  // The kernel's socket, for options, names, and calls on what is not connected.
  int socket() const { return socket_.get(); }
  bool connecting();
  // SO_LINGER, when the last descriptor is closed.
  void before_last_close();

  bool nonblocking() const { return nonblocking_.load(std::memory_order_relaxed); }
  void set_nonblocking(bool on) { nonblocking_.store(on, std::memory_order_relaxed); }
  // TCP_NODELAY as the program set it; what leat sends goes at once.
  int no_delay() const { return no_delay_.load(std::memory_order_relaxed); }
  void set_no_delay(int on) { no_delay_.store(on, std::memory_order_relaxed); }
  // Of a call that begins now, by SO_SNDTIMEO and SO_RCVTIMEO.
  Deadline send_deadline() const { return deadline_of(send_timeout_); }
  Deadline receive_deadline() const { return deadline_of(receive_timeout_); }
  // The program has set one: as the kernel has it, which rounds.
  void read_timeouts();

 private:
  // Negative: none. Relaxed, as all of the program's settings: each stands for itself.
  using Timeout = std::atomic<std::chrono::microseconds>;
  static Deadline deadline_of(const Timeout& timeout) {
    const auto time = timeout.load(std::memory_order_relaxed);
    return time.count() < 0 ? kNoDeadline : deadline_after(time);
  }
  void watch_fd(int fd, unsigned events) const;
  void unwatch_fd(int fd) const;
  void settle();
  int tell_error();

  const Fd socket_;
  const NotInherited socket_stays_{socket_.get()};
  std::atomic<bool> nonblocking_;
  std::atomic<int> no_delay_{0};
  Timeout send_timeout_;
  Timeout receive_timeout_;
  std::atomic<std::chrono::microseconds> spin_{std::chrono::microseconds(0)};

  // Set once, read without the lock.
  std::atomic<StreamEnd*> connected_{nullptr};
  std::mutex mutex_;  // all below
  int number_;
  std::unique_ptr<StreamEnd> connection_;
  std::unique_ptr<ListenerCore> listening_;
  std::unique_ptr<Connecting> connecting_;
  sockaddr_storage address_{};  // of a connect()
  socklen_t address_bytes_ = 0;
  Watch wanted_watch_;  // of a connect()
  int error_ = 0;       // why leat's handshake failed, until it is told
  std::string error_text_;
  bool success_told_ = true;  // by a second connect()
  std::uint64_t arrivals_ = 0;
  unsigned last_mask_ = 0;
};

}  // namespace leat::detail::c
