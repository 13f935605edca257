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
#include "conn/link.h"
#include "leat/error.h"

namespace leat::detail {

// A link, or why there is none.
struct LinkOutcome {
  std::optional<Link> link;
  std::optional<Error> error;

  std::string text() const { return error ? error->what() : ""; }
  // The link. EXPECTs that there is one; throws otherwise.
  Link& get();
  // EXPECTs an error of that code whose text has all the words.
  void expect_error(ErrorCode code, std::initializer_list<const char*> words) const;
};

// Settings for a test on this host that leave nothing to chance: no waiting for minutes.
Settings link_settings(const std::string& device, const std::string& transport = "auto");

// A Prepare that tells the peer `word`.
Prepare prepare_saying(const std::string& word);

// Listens on the loopback and runs accept_link for one newcomer in a thread.
class ListeningSide {
 public:
  explicit ListeningSide(Settings settings, Prepare prepare = prepare_saying("listener"));
  ListeningSide(const ListeningSide&) = delete;
  ListeningSide& operator=(const ListeningSide&) = delete;
  ~ListeningSide();

  Uri uri() const { return uri_; }
  // Blocks until accept_link has returned; if nobody came, until hang_limit().
  LinkOutcome& wait();

 private:
  void run();

  Settings settings_;
  Prepare prepare_;
  Uri uri_;
  Fd socket_;
  LinkOutcome outcome_;
  std::thread thread_;
};

LinkOutcome connect_to(const Uri& uri, const Settings& settings,
                       const Prepare& prepare = prepare_saying("client"));

// connect_link to accept_link.
struct LinkPair {
  LinkPair(const Settings& active_settings, const Settings& passive_settings,
           const Prepare& active_prepare = prepare_saying("client"),
           const Prepare& passive_prepare = prepare_saying("listener"));

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
