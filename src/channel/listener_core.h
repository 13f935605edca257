// The implementation of a Listener: a listening TCP socket, the handshakes of its newcomers, and
// the connections that are ready for accept().
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/fd.h"
#include "base/fork.h"
#include "base/settings.h"
#include "base/uri.h"
#include "channel/channel_core.h"
#include "channel/watch.h"
#include "handshake/connection.h"
#include "leat/error.h"
#include "net/stream.h"

namespace leat::detail {

class Greeting;
class Newcomers;

// A thread of its own, the door, admits newcomers and receives their hellos, so that connections
// become ready without any caller in accept(), as with TCP's backlog; it sleeps while nothing
// happens. A client that has said hello gets a place, and with it a thread that runs the rest of
// its handshake and may block. There are at most kMostHandshakes places, and places and ready
// connections together never exceed the backlog; further clients wait. A source gets at most three
// quarters of the places, and a handshake that takes long is ended when others wait for its place.
// Threads and processes as for Listener.
class ListenerCore {
 public:
  static constexpr const char* kWhenEmpty = "this listener was moved from";
  static constexpr std::size_t kMostHandshakes = 64;

  ListenerCore(const Uri& uri, const Settings& settings);
  // For a non-blocking socket that listens already.
  ListenerCore(Fd socket, const Settings& settings);
  ListenerCore(const ListenerCore&) = delete;
  ListenerCore& operator=(const ListenerCore&) = delete;
  ~ListenerCore();

  // Throws what try_accept() does. A failure from before the call is thrown only if the door fails
  // again, or if it is all that is known at the deadline.
  std::unique_ptr<ChannelCore> accept(Deadline deadline);
  // Returns null if no connection is ready. Throws kResource, once for each occurrence, if
  // descriptors, threads or memory for newcomers run out; the newcomers stay, and are tried again.
  std::unique_ptr<ChannelCore> try_accept();
  // Whether try_accept() would return a connection or throw.
  bool ready();
  // How many connections may be ready or under way before one is accepted; at least 1.
  void set_backlog(std::size_t backlog);
  // Frees the port and ends the connections that were not accepted.
  void close() noexcept;
  bool closed();

  const Settings& settings() const { return settings_; }
  const std::string& address() const { return address_; }
  // Readable while ready(), and for good after close(); may be readable without cause.
  int fd() const { return news_.get(); }
  // The owner's thread: the poller that watches this listener, or null.
  void set_watch(Watch* watch) { watch_ = watch; }
  Watch* watch() const { return watch_; }
  // Valid until close().
  int socket() const { return socket_.get(); }

 private:
  struct Handshake {
    std::string source;
    Deadline begun{};
    std::unique_ptr<std::thread> thread;
    Heard client;              // until its thread takes it
    Stream* stream = nullptr;  // set while it can be aborted
    LastWord last_word = LastWord::kNotYet;
    bool slow = false;                  // took too long, and was aborted
    bool ended = false;                 // the thread touches nothing of the listener any more
    std::unique_ptr<ChannelCore> core;  // the result; null if the handshake failed

    bool is_done_for_client() const;
  };

  // --- called by the door's thread
  void keep_door() noexcept;
  bool serve_door(Newcomers& newcomers);
  void admit(Newcomers& newcomers);
  void start_handshakes(Newcomers& newcomers);
  void start_handshake(Newcomers& newcomers, Greeting& greeting);
  void end_slow_ones(std::size_t waiting);
  void rest_after(std::optional<Error> error);

  std::optional<Error> take_error();
  void run(Handshake& handshake) noexcept;
  void forget_ended_handshakes();
  std::size_t under_way() const;
  Handshake* first_ready();

  const MadeHere made_here_;
  const Settings settings_;
  Watch* watch_ = nullptr;
  Fd socket_;
  std::optional<NotInherited> socket_stays_{
      socket_.get()};  // must be closed by this process's death
  const std::string address_;
  const Fd news_;  // notifies accept()
  const Fd wake_;  // notifies the door

  std::mutex mutex_;  // guards everything below
  std::condition_variable ended_;
  std::list<Handshake> handshakes_;  // in the order in which they began
  std::optional<Error> error_;       // to be thrown by the next accept
  std::size_t backlog_;
  bool closed_ = false;

  // Used by the door's thread only.
  Deadline look_again_ = kNoDeadline;
  Deadline rests_until_{};

  std::mutex closing_;
  std::unique_ptr<std::thread> door_;
};

}  // namespace leat::detail
