// What tests of the poller share.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "leat/poller.h"
#include "support/channel_side.h"
#include "support/fork_at_rest.h"

namespace leat::detail {

inline constexpr std::chrono::nanoseconds kNoTime{0};

inline const ChannelKind kRing{"ring", "shm"};

// A process that runs `body`, and then ends without destroying anything.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : process_(fork_at_rest()) {
    if (process_ != 0) return;
    try {
      body();
    } catch (const std::exception& error) {
      fprintf(stderr, "child: %s\n", error.what());
      _exit(1);
    }
    _exit(0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    kill();
    join();
  }

  void kill() {
    if (process_ > 0) ::kill(process_, SIGKILL);
  }
  int join() {
    int status = 0;
    if (process_ > 0) waitpid(std::exchange(process_, 0), &status, 0);
    return status;
  }

 private:
  pid_t process_;
};

// Pairs of channels whose two ends are both here.
class Pairs {
 public:
  void make(const ChannelKind& kind, std::size_t count = 1) {
    Options options = channel_options(kind);
    Listener listener(listening_address(kind), options);
    for (std::size_t i = 0; i < count; ++i) {
      theirs.push_back(nullptr);
      std::thread client([&] {
        theirs.back() = std::make_unique<Channel>(Channel::connect(listener.address(), options));
      });
      ours.push_back(std::make_unique<Channel>(listener.accept()));
      client.join();
    }
  }
  void add_to(Poller& poller, Events events = Events::kReadable) {
    for (std::size_t i = 0; i < ours.size(); ++i) poller.add(*ours[i], events, i);
  }

  std::vector<std::unique_ptr<Channel>> ours, theirs;
};

}  // namespace leat::detail
