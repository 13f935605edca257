// What stands behind a Listener: a listening TCP socket and the handshakes of who knocks there.
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/fd.h"
#include "base/fork.h"
#include "base/settings.h"
#include "base/uri.h"
#include "conn/link.h"
#include "conn/stream.h"
#include "socket/channel_core.h"

namespace leat::detail {

// One thread per handshake, so that each can simply block, with a deadline, and none holds up
// others. Threads and processes as for Listener.
class ListenerCore {
 public:
  ListenerCore(const Uri& uri, const Settings& settings);
  // For a socket that listens already and does not block.
  ListenerCore(Fd socket, const Settings& settings);
  ListenerCore(const ListenerCore&) = delete;
  ListenerCore& operator=(const ListenerCore&) = delete;
  ~ListenerCore();

  std::unique_ptr<ChannelCore> accept(Deadline deadline);
  // Null if no connection is ready.
  std::unique_ptr<ChannelCore> try_accept();
  void close() noexcept;

  const Settings& settings() const { return settings_; }
  const std::string& address() const { return address_; }
  int fd() const { return wait_.get(); }
  // Until close().
  int socket() const { return socket_.get(); }

 private:
  struct Handshake {
    std::unique_ptr<std::thread> thread;
    Stream* stream = nullptr;  // while it can be aborted
    int socket = -1;           // before there is a stream
    LastWord last_word = LastWord::kNotYet;
    bool ended = false;                 // the thread does nothing more here
    std::unique_ptr<ChannelCore> core;  // then, unless it failed

    bool is_done_for_client() const;
  };

  void watch_newcomers(bool wanted);
  bool start_handshake();
  void forget_ended_handshakes();
  std::size_t handshakes_under_way() const;
  std::unique_ptr<ChannelCore> take_next();
  void run(Fd socket, Handshake& handshake) noexcept;

  const MadeHere made_here_;
  const Settings settings_;
  Fd socket_;
  std::optional<NotInherited> socket_stays_{socket_.get()};  // our death must end it
  const std::string address_;
  const Fd done_;  // readable: a handshake ended, or we are closed
  const Fd wait_;  // epoll over both

  std::mutex mutex_;  // all below
  std::condition_variable ended_;
  std::list<Handshake> handshakes_;  // as they knocked
  bool watches_newcomers_ = true;
  bool closed_ = false;
};

}  // namespace leat::detail
