// Both ends of a handshake in one test, and what came of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/settings.h"
#include "base/uri.h"
#include "handshake/connection.h"
#include "leat/error.h"
#include "support/devices.h"

namespace leat::detail {

// A connection, or why there is none.
struct LinkOutcome {
  std::optional<Connection> link;
  std::optional<Error> error;

  std::string text() const { return error ? error->what() : ""; }
  // The connection. EXPECTs that there is one; throws otherwise.
  Connection& get();
  // EXPECTs an error of that code whose text has all the words.
  void expect_error(ErrorCode code, std::initializer_list<const char*> words) const;
};

// Settings for a test on this host that leave nothing to chance: no waiting for minutes.
Settings link_settings(const std::string& device, const std::string& transport = "auto");

// While it lives devices have no memory for a side whose settings ask for rings of kNoRingBytes.
inline constexpr std::size_t kNoRingBytes = std::size_t{64} << 20;
class NoMemoryForRings {
 public:
  NoMemoryForRings();

 private:
  const DecoratedDevices decorated_;
};

// What Greeting hears of a client. Blocks; throws why it was turned away, once it has ended.
Heard hear(Fd newcomer, const Settings& settings);

// Listens on the loopback and runs accept_connection for one newcomer in a thread.
class ListeningSide {
 public:
  explicit ListeningSide(Settings settings);
  ListeningSide(const ListeningSide&) = delete;
  ListeningSide& operator=(const ListeningSide&) = delete;
  ~ListeningSide();

  Uri uri() const { return uri_; }
  // Blocks until accept_connection has returned; if nobody came, until hang_limit().
  LinkOutcome& wait();

 private:
  void run();

  Settings settings_;
  Uri uri_;
  Fd socket_;
  LinkOutcome outcome_;
  std::thread thread_;
};

LinkOutcome connect_to(const Uri& uri, const Settings& settings);

// open_connection to accept_connection.
struct LinkPair {
  LinkPair(const Settings& active_settings, const Settings& passive_settings);

  LinkOutcome active;
  LinkOutcome passive;
};

// The port that the system chose for a listening socket.
std::uint16_t bound_port(int socket);

// A connected TCP socket to `uri`, for newcomers that do not speak leat. Blocking.
Fd raw_connection(const Uri& uri);
void raw_send(int socket, const void* bytes, std::size_t count);
// Everything until the peer ends, as text.
std::string raw_receive_all(int socket);

}  // namespace leat::detail
