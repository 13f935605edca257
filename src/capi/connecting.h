// A connection that is being made: TCP first, then leat's handshake.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/settings.h"
#include "channel/channel_core.h"

namespace leat::detail::c {

// A thread of its own does it, so that the caller of connect need not block and may be interrupted.
// The constructor's thread, or one at a time.
class Connecting {
 public:
  enum class Outcome { kNone, kConnected, kTcpFailed, kLeatFailed };

  // `socket` has begun to connect; it is shut down if this ends before.
  Connecting(Fd socket, Settings settings);
  Connecting(const Connecting&) = delete;
  Connecting& operator=(const Connecting&) = delete;
  ~Connecting();

  // kNone while it is under way. With kTcpFailed the kernel's socket knows why.
  Outcome outcome() const { return outcome_.load(std::memory_order_acquire); }
  // After kConnected.
  std::unique_ptr<ChannelCore> take_core() { return std::move(core_); }
  // After kLeatFailed.
  int error() const { return error_; }
  const std::string& text() const { return text_; }
  // Readable once there is an outcome.
  int fd() const { return news_.get(); }

 private:
  void run(Fd socket) noexcept;

  const Settings settings_;
  const Fd news_;
  const Fd watched_;  // the socket once more, to shut it down
  std::unique_ptr<ChannelCore> core_;
  int error_ = 0;
  std::string text_;
  std::atomic<Outcome> outcome_{Outcome::kNone};  // release: after all above
  std::thread thread_;
};

}  // namespace leat::detail::c
