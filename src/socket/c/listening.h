// A listening socket whose connections come to stand ready by themselves, as in TCP's backlog.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/fd.h"
#include "socket/listener_core.h"

namespace leat::detail::c {

// A thread of its own does the handshakes: who connects need not wait until accept is called.
// Any thread.
class Listening {
 public:
  Listening(std::unique_ptr<ListenerCore> listener, int backlog);
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  ~Listening();

  // The next connection; null if there is none, then `error` is 0, or the errno of what keeps them
  // from coming.
  std::unique_ptr<ChannelCore> accept(int& error);
  bool ready();
  void set_backlog(int backlog);
  // Nobody comes any more; those that are here stay.
  void stop() noexcept;
  bool stopped();
  // Readable while somebody is ready.
  int fd() const { return news_.get(); }

 private:
  void run() noexcept;

  const std::unique_ptr<ListenerCore> listener_;
  const Fd news_;

  std::mutex mutex_;  // all below
  std::condition_variable changed_;
  std::deque<std::unique_ptr<ChannelCore>> ready_;
  int error_ = 0;
  std::size_t backlog_;
  bool stopped_ = false;

  std::thread thread_;
};

}  // namespace leat::detail::c
