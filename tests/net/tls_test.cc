// Streams inside TLS: peers with keys, and strangers without.
#include "net/tls.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "base/key_file.h"
#include "base/system_error.h"
#include "handshake/hello.h"
#include "net/bytes_pass.h"
#include "net/tcp.h"
#include "support/errors.h"
#include "support/leaks.h"
#include "support/link_pair.h"
#include "support/scale.h"
#include "support/scratch.h"

namespace leat::detail {
namespace {

constexpr const char* kKey = "00112233445566778899aabbccddeeff";
constexpr const char* kOtherKey = "00112233445566778899aabbccddeefe";
const std::string kLongKey = std::string(kKey) + kKey;

class TlsTest : public testing::Test {
 protected:
  Settings with_key(const std::string& key, const std::string& device = "tcp") const {
    Settings settings = link_settings(device);
    settings.tls_psk_file = folder_.write("key-" + key.substr(0, 40), key + "\n");
    return settings;
  }

  ScratchFolder folder_;
};

TEST_F(TlsTest, SameKeyConnects) {
  for (const std::string& key : {std::string(kKey), kLongKey, std::string(512, '7')}) {
    LinkPair pair(with_key(key), with_key(key));
    EXPECT_TRUE(pair.active.get().stream->encrypted());
    EXPECT_TRUE(pair.passive.get().stream->encrypted());
    expect_bytes_pass(*pair.active.get().stream, *pair.passive.get().stream, 1'000'000);
    expect_bytes_pass(*pair.passive.get().stream, *pair.active.get().stream, 1'000'000);
  }
}

// With the key alone, whoever learns it later could read what was recorded before.
TEST_F(TlsTest, AKeyIsUsedWithAnEphemeralExchangeOnly) {
  const auto pair = [] {
    std::array<int, 2> ends{};
    check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()),
          "socketpair");
    return std::pair<Fd, Fd>(ends[0], ends[1]);
  };
  auto [clients, before] = pair();
  auto [listeners, behind] = pair();
  const Settings settings = with_key(kLongKey);
  TlsStream client(std::move(clients), std::make_unique<TlsContext>(settings, TlsRole::kActive));
  TlsStream listener(std::move(listeners),
                     std::make_unique<TlsContext>(settings, TlsRole::kPassive));
  std::string to_listener, to_client;
  const auto pass = [](const Fd& from, const Fd& to, std::string& recorded) {
    std::array<char, 4096> bytes{};
    const ssize_t got = ::read(from.get(), bytes.data(), bytes.size());
    if (got <= 0) return;
    recorded.append(bytes.data(), static_cast<std::size_t>(got));
    ASSERT_EQ(::write(to.get(), bytes.data(), static_cast<std::size_t>(got)), got);
  };
  for (bool both = false; !both;) {
    const bool client_done = client.try_handshake() == 0;
    pass(before, behind, to_listener);
    both = listener.try_handshake() == 0 && client_done;
    pass(behind, before, to_client);
  }
  // RFC 8446, 4.2.9: psk_key_exchange_modes lists psk_dhe_ke and nothing else.
  EXPECT_NE(to_listener.find(std::string("\x00\x2d\x00\x02\x01\x01", 6)), std::string::npos);
  // 4.2.8: the listener's key_share, X25519.
  EXPECT_NE(to_client.find(std::string("\x00\x33\x00\x24\x00\x1d\x00\x20", 8)), std::string::npos);
}

TEST_F(TlsTest, ShmIsSetUpInsideTls) {
  LinkPair pair(with_key(kKey, "auto"), with_key(kKey, "auto"));
  EXPECT_EQ(pair.active.get().device_name, "shm");
  EXPECT_TRUE(pair.passive.get().stream->encrypted());
}

TEST_F(TlsTest, WrongKeyIsAnAuthenticationErrorOnBothSides) {
  for (const std::string& key : {std::string(kOtherKey), kLongKey}) {
    LinkPair pair(with_key(key), with_key(kKey));
    pair.active.expect_error(ErrorCode::kAuthentication, {"TLS handshake failed", "tls_psk_file"});
    pair.passive.expect_error(ErrorCode::kAuthentication, {"TLS handshake failed", "tls_psk_file"});
  }
}

// An attacker in the middle, without a key: it passes every connection on to `target`.
class Middle {
 public:
  explicit Middle(const Uri& target) {
    uri_.host = "127.0.0.1";
    socket_ = listen_tcp(uri_);
    uri_.port = bound_port(socket_.get());
    thread_ = std::thread([this, target] { lead_to(target); });
  }
  Middle(const Middle&) = delete;
  Middle& operator=(const Middle&) = delete;
  ~Middle() { thread_.join(); }

  const Uri& uri() const { return uri_; }

 private:
  void lead_to(const Uri& target) {
    wait_ready(socket_.get(), POLLIN, hang_deadline(), "nobody came");
    const Fd client(check(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept4"));
    const Fd listener = raw_connection(target);
    std::array<char, 4096> bytes{};
    for (;;) {
      std::array<pollfd, 2> ready{pollfd{client.get(), POLLIN, 0},
                                  pollfd{listener.get(), POLLIN, 0}};
      if (poll(ready.data(), ready.size(), poll_timeout_ms(hang_deadline())) <= 0) return;
      for (int from = 0; from < 2; ++from) {
        if (ready[static_cast<std::size_t>(from)].revents == 0) continue;
        const ssize_t got =
            recv(ready[static_cast<std::size_t>(from)].fd, bytes.data(), bytes.size(), 0);
        if (got <= 0) return;
        (void)send(ready[static_cast<std::size_t>(1 - from)].fd, bytes.data(),
                   static_cast<std::size_t>(got), MSG_NOSIGNAL);
      }
    }
  }

  Uri uri_;
  Fd socket_;
  std::thread thread_;
};

// The key alone cannot tell: this process has it, on both ends.
TEST_F(TlsTest, ConnectionThatIsLedBackToItsOwnProcessIsRefused) {
  ListeningSide listening(with_key(kKey));
  const Middle middle(listening.uri());
  connect_to(middle.uri(), with_key(kKey))
      .expect_error(ErrorCode::kAuthentication, {"led back", "same process"});
  listening.wait().expect_error(ErrorCode::kAuthentication, {"led back"});
}

TEST_F(TlsTest, ConnectionThatIsLedToAnotherProcessStands) {
  const Settings settings = with_key(kKey);
  std::array<int, 2> ends{};
  check(::pipe(ends.data()), "pipe");
  const pid_t child = check(::fork(), "fork");  // before there are threads
  if (child == 0) {
    Uri uri{.host = "127.0.0.1", .port = 0, .parameters = {}};
    check(static_cast<int>(::read(ends[0], &uri.port, sizeof uri.port)), "read");
    const LinkOutcome outcome = connect_to(uri, settings);
    std::_Exit(outcome.link ? 0 : 1);
  }
  ListeningSide listening(settings);
  const Middle middle(listening.uri());
  check(static_cast<int>(::write(ends[1], &middle.uri().port, sizeof middle.uri().port)), "write");
  for (const int end : ends) ::close(end);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(listening.wait().get().stream->encrypted());
}

TEST_F(TlsTest, ClientInClearIsRefusedAndToldWhy) {
  LinkPair pair(link_settings("tcp"), with_key(kKey));
  pair.active.expect_error(ErrorCode::kAuthentication, {"the listener refused", "asks for TLS"});
  pair.passive.expect_error(ErrorCode::kAuthentication, {"does not speak TLS", "tls_*"});
}

TEST_F(TlsTest, ListenerInClearIsNotTalkedTo) {
  LinkPair pair(with_key(kKey), link_settings("tcp"));
  pair.active.expect_error(ErrorCode::kAuthentication, {"does not speak TLS", "tls_*"});
  pair.passive.expect_error(ErrorCode::kAuthentication, {"the peer speaks TLS"});
}

TEST_F(TlsTest, HttpAndJunkAreRefused) {
  for (const std::string& text : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(5000, 'x')}) {
    ListeningSide listening(with_key(kKey));
    Fd stranger = raw_connection(listening.uri());
    raw_send(stranger.get(), text.data(), text.size());
    raw_receive_all(stranger.get());
    stranger.reset();
    listening.wait().expect_error(ErrorCode::kAuthentication, {"does not speak TLS"});
  }
}

TEST_F(TlsTest, SilenceInTheHandshakeEndsAtTheDeadline) {
  Settings settings = with_key(kKey);
  settings.handshake_timeout = std::chrono::milliseconds(100);
  ListeningSide listening(settings);
  Fd stranger = raw_connection(listening.uri());
  const std::string start("\x16\x03\x01\x02", 4);  // the beginning of a record, as TLS has it
  raw_send(stranger.get(), start.data(), start.size());
  wait_ready(stranger.get(), POLLIN, hang_deadline(), "not disconnected");
  stranger.reset();
  listening.wait().expect_error(ErrorCode::kTimeout, {"TLS handshake"});
}

TEST_F(TlsTest, EndInTheHandshakeIsADeadPeer) {
  ListeningSide listening(with_key(kKey));
  raw_connection(listening.uri()).reset();
  listening.wait().expect_error(ErrorCode::kPeerDied, {"TLS handshake"});
}

TEST_F(TlsTest, FailuresLeaveNothingBehind) {
  const Settings good = with_key(kKey);
  const Settings bad = with_key(kOtherKey);
  const auto all = [&] {
    LinkPair right(good, good);
    EXPECT_TRUE(right.active.link);
    LinkPair wrong(bad, good);
    LinkPair clear(link_settings("tcp"), good);
  };
  all();
  const Holdings before = count_holdings();
  all();
  expect_no_more_than(before, std::size_t{4} << 20);
}

TEST_F(TlsTest, KeyFilesAreChecked) {
  const std::string path = "/some/key";
  const KeyFile key_file{"tls_psk_file", path, 16, 256};
  const auto text_of = [&](const std::string& text) -> std::string {
    try {
      parse_key(text, key_file);
      return "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
  };
  EXPECT_EQ(parse_key(std::string(kKey) + " \r\n", key_file).size(), 16U);
  EXPECT_EQ(parse_key("ABCDEFabcdef00112233445566778899", key_file)[0], 0xab);
  EXPECT_EQ(text_of(std::string(512, 'f')), "accepted");
  EXPECT_NE(text_of("").find("at least 32"), std::string::npos);
  EXPECT_NE(text_of("001122").find("at least 32"), std::string::npos);
  EXPECT_NE(text_of(std::string(kKey) + "0").find("odd"), std::string::npos);
  EXPECT_NE(text_of(std::string(kKey) + "zz").find("hexadecimal"), std::string::npos);
  EXPECT_NE(text_of(std::string(kKey) + "\n" + kKey).find("one line"), std::string::npos);
  EXPECT_NE(text_of(std::string(514, 'f')).find("at most 512"), std::string::npos);
  EXPECT_NE(text_of("zz").find("/some/key"), std::string::npos);
  EXPECT_EQ(text_of(std::string(kKey) + "zz").find(kKey), std::string::npos) << "shows the key";

  Settings missing = link_settings("tcp");
  missing.tls_psk_file = folder_.path() + "/none";
  EXPECT_THROW(check_settings(missing), Error);
  Settings both = with_key(kKey);
  both.tls_ca_file = missing.tls_psk_file;
  EXPECT_THROW(check_settings(both), Error);
}

TEST_F(TlsTest, KeyFileThatOthersCanReadIsRefused) {
  Settings settings = link_settings("tcp");
  settings.tls_psk_file = folder_.write("open.key", kKey, 0644);
  const std::string said =
      detail::error_of(ErrorCode::kInvalidArgument, [&] { check_settings(settings); });
  EXPECT_NE(said.find("tls_psk_file '" + settings.tls_psk_file + "'"), std::string::npos) << said;
  EXPECT_NE(said.find("its mode is 0644"), std::string::npos) << said;
  ASSERT_EQ(chmod(settings.tls_psk_file.c_str(), 0600), 0);
  EXPECT_NO_THROW(check_settings(settings));
}

// --- a stream by itself

struct TlsPair {
  explicit TlsPair(const Settings& settings, int buffer_bytes = 0) {
    Uri uri;
    uri.host = "127.0.0.1";
    const Fd listener = listen_tcp(uri);
    uri.port = bound_port(listener.get());
    Fd client = connect_tcp(uri, hang_deadline(), false);
    if (buffer_bytes != 0) {
      check(setsockopt(client.get(), SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes),
            "setsockopt");
    }
    wait_ready(listener.get(), POLLIN, hang_deadline(), "nobody came");
    Fd newcomer(check(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept4"));
    active = std::make_unique<TlsStream>(std::move(client),
                                         std::make_unique<TlsContext>(settings, TlsRole::kActive));
    passive = std::make_unique<TlsStream>(
        std::move(newcomer), std::make_unique<TlsContext>(settings, TlsRole::kPassive));
    std::thread other([&] { EXPECT_NO_THROW(passive->handshake(hang_deadline())); });
    EXPECT_NO_THROW(active->handshake(hang_deadline()));
    other.join();
  }

  std::unique_ptr<TlsStream> active;
  std::unique_ptr<TlsStream> passive;
};

TEST_F(TlsTest, BothDirectionsAtOnceFromFourThreads) {
  TlsPair pair(with_key(kKey));
  std::thread one([&] { expect_bytes_pass(*pair.active, *pair.passive, 3'000'000); });
  expect_bytes_pass(*pair.passive, *pair.active, 3'000'000);
  one.join();
}

TEST_F(TlsTest, GoodbyeIsTheEndAndACutIsNot) {
  TlsPair pair(with_key(kKey));
  std::array<std::byte, 8> room{};
  EXPECT_FALSE(pair.passive->try_read(room));
  pair.active.reset();
  wait_ready(pair.passive->fd(), POLLIN, hang_deadline(), "no end");
  EXPECT_EQ(pair.passive->try_read(room), 0U);

  TlsPair cut(with_key(kKey));
  cut.active->abort();  // ends TCP without TLS's goodbye, as an attacker in the middle could
  wait_ready(cut.passive->fd(), POLLIN, hang_deadline(), "no end");
  try {
    cut.passive->try_read(room);
    ADD_FAILURE() << "a cut looks like an end";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerDied) << error.what();
  }
}

TEST_F(TlsTest, WriteThatFoundNoRoomMustBeRepeated) {
  TlsPair pair(with_key(kKey), 4096);
  std::vector<std::byte> bytes(1 << 16, std::byte{1});
  std::size_t sent = 0;
  while (const auto more = pair.active->try_write(bytes)) sent += *more;
  const std::vector<std::byte> others(1 << 16, std::byte{2});
  EXPECT_THROW(pair.active->try_write(others), Error);
  EXPECT_THROW(pair.active->try_write(std::span(bytes).first(1)), Error);
  // The same bytes, at another place, go on.
  const std::vector<std::byte> again = bytes;
  std::vector<std::byte> got(sent + again.size());
  std::thread reader([&] { read_all(*pair.passive, got, hang_deadline()); });
  write_all(*pair.active, again, hang_deadline());
  reader.join();
  EXPECT_TRUE(std::all_of(got.begin(), got.end(), [](std::byte b) { return b == std::byte{1}; }));
}

TEST_F(TlsTest, WritingToAPeerThatIsGoneIsAnErrorAndNoSignal) {
  TlsPair pair(with_key(kKey));
  pair.passive.reset();
  const std::vector<std::byte> bytes(1000);
  try {
    for (;;) write_all(*pair.active, bytes, hang_deadline());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerDied) << error.what();
  }
}

// --- what a handshake gives both ends to derive keys from

std::string exported_by(TlsStream& stream, std::string_view label, std::string_view context) {
  std::array<char, 32> bytes{};
  stream.exported(label, std::as_bytes(std::span(context)),
                  std::as_writable_bytes(std::span(bytes)));
  return {bytes.data(), bytes.size()};
}

// For two peers whose key is always the same: a secret of one connection opens no other one's
// records, and a secret of one purpose or context serves for no other.
TEST_F(TlsTest, BothEndsExportWhatNoOtherHandshakeLabelOrContextGives) {
  const Settings settings = with_key(kKey);
  std::set<std::string> seen;
  std::size_t count = 0;
  for (int handshake = 0; handshake < 3; ++handshake) {
    TlsPair pair(settings);
    for (const char* label : {"EXPERIMENTAL-leat-sealed", "EXPERIMENTAL-leat-seale", "other"}) {
      for (const std::string& context :
           {std::string(), std::string(1, '\0'), std::string("hello"), std::string("hellp"),
            std::string("hello "), std::string(20'000, 'h'), std::string(20'001, 'h')}) {
        const std::string exported = exported_by(*pair.active, label, context);
        EXPECT_EQ(exported_by(*pair.passive, label, context), exported) << label;
        EXPECT_EQ(exported_by(*pair.active, label, context), exported) << "asked again";
        seen.insert(exported);
        ++count;
      }
    }
  }
  EXPECT_EQ(seen.size(), count);
}

}  // namespace
}  // namespace leat::detail
