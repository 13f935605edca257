#include "socket/c/listening.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "base/system_error.h"
#include "leat/error.h"
#include "socket/c/call.h"

namespace leat::detail::c {
namespace {

// Between tries while descriptors or memory are out.
constexpr auto kRetryInterval = std::chrono::milliseconds(10);

std::size_t places(int backlog) {
  // The kernel too has room for one more than it is told, and takes no more than SOMAXCONN.
  return static_cast<std::size_t>(std::clamp(backlog, 0, SOMAXCONN)) + 1;
}

}  // namespace

Listening::Listening(std::unique_ptr<ListenerCore> listener, int backlog)
    : listener_(std::move(listener)),
      news_(check(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")),
      backlog_(places(backlog)) {
  const SignalsHeld not_for_the_thread;
  thread_ = std::thread([this] { run(); });
}

Listening::~Listening() {
  stop();
  thread_.join();
  for (auto& core : ready_) {
    core->reset();
    ChannelCore::orphan(core.release());
  }
}

void Listening::run() noexcept {
  for (;;) {
    int error = 0;
    std::unique_ptr<ChannelCore> core;
    try {
      core = listener_->accept(kNoDeadline);
    } catch (const Error& failure) {
      if (failure.code() == ErrorCode::kClosed) return;
      error = failure.system_errno();
      log(LogLevel::kWarn, failure.what());
    } catch (const std::exception& failure) {
      error = ENOMEM;
      log(LogLevel::kWarn, failure.what());
    }
    std::unique_lock lock(mutex_);
    if (core != nullptr) {
      ready_.push_back(std::move(core));
    } else {
      error_ = error;
    }
    eventfd_write(news_.get(), 1);
    if (error != 0) changed_.wait_for(lock, kRetryInterval, [this] { return stopped_; });
    changed_.wait(lock, [this] { return stopped_ || ready_.size() < backlog_; });
    if (stopped_) return;
  }
}

std::unique_ptr<ChannelCore> Listening::accept(int& error) {
  const std::lock_guard lock(mutex_);
  error = 0;
  std::unique_ptr<ChannelCore> core;
  if (!ready_.empty()) {
    core = std::move(ready_.front());
    ready_.pop_front();
    changed_.notify_all();
  } else {
    error = std::exchange(error_, 0);
  }
  eventfd_t old = 0;
  if (ready_.empty() && !stopped_) eventfd_read(news_.get(), &old);
  return core;
}

bool Listening::ready() {
  const std::lock_guard lock(mutex_);
  return !ready_.empty() || error_ != 0;
}

bool Listening::stopped() {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

void Listening::set_backlog(int backlog) {
  const std::lock_guard lock(mutex_);
  backlog_ = places(backlog);
  changed_.notify_all();
}

void Listening::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
    eventfd_write(news_.get(), 1);  // for good: wakes who waits
  }
  listener_->close();
}

}  // namespace leat::detail::c
