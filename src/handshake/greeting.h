// What a listener hears of a newcomer before it spends anything on it: TLS, if the settings ask for
// it, then the client's hello.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/fork.h"
#include "base/settings.h"
#include "handshake/connection.h"
#include "leat/error.h"

namespace leat::detail {

class TlsStream;

// Nothing here blocks, so that one thread hears any number of clients; one that is silent costs a
// descriptor and this object. One thread.
class Greeting {
 public:
  enum class State {
    kWaiting,  // for more of the client's words
    kHeard,    // the hello is whole; nothing in it is judged yet
    kLeaving,  // the client is told why it may not come in
    kOver
  };

  // `settings` must outlive it. Throws if the client has hung up already.
  Greeting(Fd socket, const Settings& settings);

  // Takes what has come, and ends what has lasted too long: handshake_timeout from the beginning to
  // the hello. A client that gives up ends it too, also after its hello.
  State advance() noexcept;
  // The client may not come in: kOver, or kLeaving if it speaks so that it can be told why. Without
  // memory for the words it hears nothing, and only ends.
  void turn_away(ErrorCode code, const char* why, int system_errno = 0) noexcept;

  State state() const { return state_; }
  // For poll(2): wait for this, and until this time, before the next advance().
  int fd() const { return fd_; }
  short events() const { return events_; }
  Deadline deadline() const { return deadline_; }
  // Whether it has said anything.
  bool spoke() const { return stream_ != nullptr; }
  // Where it comes from, as far as one host or network counts as one: the IPv4 address, the first
  // half of an IPv6 address.
  const std::string& source() const { return source_; }
  // Why it was turned away; once.
  std::optional<Error> take_error() { return std::exchange(error_, std::nullopt); }

  // After kHeard.
  Clock::time_point heard_at() const { return heard_at_; }
  Heard take_heard();

 private:
  bool listen();
  bool start_speaking();
  bool read_hello();
  std::string what_is_missing() const;
  Error ended() const;
  void tell(const Error& why);
  void drain();

  const Settings& settings_;
  Fd socket_;  // until there is a stream
  std::optional<NotInherited> stays_;
  const int fd_;
  const std::string peer_;
  const std::string source_;
  State state_ = State::kWaiting;
  short events_;
  Deadline deadline_;
  Clock::time_point heard_at_{};
  std::optional<Error> error_;
  std::unique_ptr<Stream> stream_;
  TlsStream* tls_ = nullptr;  // whose handshake is not through
  std::vector<std::byte> hello_;
  std::size_t got_ = 0;
  std::size_t drained_ = 0;
};

}  // namespace leat::detail
