// Somebody between client and listener, or a listener that cannot be trusted, while both sides ask
// for confidential=require: a channel is sealed, or there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/system_error.h"
#include "handshake/hello.h"
#include "leat/channel.h"
#include "leat/listener.h"
#include "net/tcp.h"
#include "net/tls.h"
#include "support/channel_side.h"
#include "support/errors.h"
#include "support/leaving_host.h"
#include "support/link_pair.h"
#include "support/peer_pair.h"
#include "support/scale.h"
#include "verbs/table.h"

namespace leat::detail {
namespace {

constexpr const char* kSealedRing = "sealed+ring";

enum class Way : std::size_t { kToListener = 0, kToClient = 1 };

struct OneByte {
  Way way;
  std::size_t offset;  // in all that goes this way
};
void PrintTo(const OneByte& byte, std::ostream* out) {
  *out << "byte " << byte.offset
       << (byte.way == Way::kToClient ? " to the client" : " to the listener");
}

// Passes one connection on to `target` and flips a bit of one byte, if any.
class Tamperer {
 public:
  Tamperer(const Uri& target, std::optional<OneByte> victim) : victim_(victim) {
    uri_.host = "127.0.0.1";
    socket_ = listen_tcp(uri_);
    uri_.port = bound_port(socket_.get());
    thread_ = std::thread([this, target] { lead_to(target); });
  }
  Tamperer(const Tamperer&) = delete;
  Tamperer& operator=(const Tamperer&) = delete;
  // Returns once both ends have gone.
  ~Tamperer() { thread_.join(); }

  const Uri& uri() const { return uri_; }
  std::size_t passed(Way way) const { return passed_[static_cast<std::size_t>(way)].load(); }
  bool has_flipped() const { return flipped_.load(); }

 private:
  void lead_to(const Uri& target) {
    wait_ready(socket_.get(), POLLIN, hang_deadline(), "nobody came");
    const Fd client(check(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept4"));
    const Fd listener = raw_connection(target);
    const std::array<int, 2> sockets{client.get(), listener.get()};
    const int on = 1;
    for (const int socket : sockets)
      check(setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "setsockopt");
    std::array<bool, 2> open{true, true};
    while (open[0] || open[1]) {
      std::array<pollfd, 2> ready{};
      for (const std::size_t from : {0U, 1U})
        ready[from] = {open[from] ? sockets[from] : -1, POLLIN, 0};
      if (poll(ready.data(), ready.size(), poll_timeout_ms(hang_deadline())) <= 0) return;
      for (const std::size_t from : {0U, 1U}) {
        if (ready[from].revents != 0) open[from] = pass(from, sockets[from], sockets[1 - from]);
      }
    }
  }

  // False at the end, which it passes on, too.
  bool pass(std::size_t way, int from, int to) {
    std::array<char, 4096> bytes{};
    const ssize_t got = recv(from, bytes.data(), bytes.size(), 0);
    if (got <= 0) {
      ::shutdown(to, SHUT_WR);
      return false;
    }
    const auto count = static_cast<std::size_t>(got);
    const std::size_t before = passed_[way].load();
    if (victim_ && static_cast<std::size_t>(victim_->way) == way && victim_->offset >= before &&
        victim_->offset < before + count) {
      char& byte = bytes[victim_->offset - before];
      byte = static_cast<char>(byte ^ (1 << victim_->offset % 8));
      flipped_ = true;
    }
    passed_[way] = before + count;
    (void)send(to, bytes.data(), count, MSG_NOSIGNAL);
    return true;
  }

  const std::optional<OneByte> victim_;
  Uri uri_;
  Fd socket_;
  std::array<std::atomic<std::size_t>, 2> passed_{};
  std::atomic<bool> flipped_{false};
  std::thread thread_;
};

Uri uri_of(std::uint16_t port) {
  Uri uri;
  uri.host = "127.0.0.1";
  uri.port = port;
  return uri;
}

// The first bytes, which TLS sends in clear, each; others at equal distances; and the last one.
std::vector<OneByte> victims(Way way, std::size_t bytes, std::size_t first, std::size_t others) {
  std::vector<OneByte> made;
  for (std::size_t offset = 0; offset < std::min(first, bytes); ++offset)
    made.push_back({way, offset});
  for (std::size_t i = 1; i <= others; ++i)
    made.push_back({way, first + (bytes - first - 1) * i / others});
  return made;
}

class Middleman : public testing::Test {
 protected:
  static Settings demanding() {
    Settings settings = link_settings("shm");
    settings.confidential = Confidential::kRequire;
    settings.tls_psk_file = channel_key_file();
    return settings;
  }
  static Options demanding_options() {
    Options options = channel_options({"auto", "shm"});
    options.confidential = "require";
    options.tls_psk_file = channel_key_file();
    return options;
  }

 private:
  const LeavingHost leaving_;
};

// Until the client gives up: a byte that makes a length greater leaves both sides waiting.
constexpr std::chrono::milliseconds kFirstPatience{200};

// EXPECTs a connection that is sealed, or an error that says what failed. Returns "sealed" or
// "error".
std::string verdict_on(const LinkOutcome& outcome, const char* context) {
  if (outcome.link) {
    EXPECT_EQ(outcome.link->transport_name, kSealedRing);
    return "sealed";
  }
  EXPECT_THAT(outcome.error->code(),
              testing::AnyOf(ErrorCode::kAuthentication, ErrorCode::kPeerDied, ErrorCode::kTimeout))
      << outcome.text();
  EXPECT_THAT(outcome.text(), testing::HasSubstr(context));
  return "error";
}

// The listener's side of each attempt, in a process of its own: TLS would find out a connection
// that is led back to its own process.
void listen_for_attempts(Peer& peer, const Settings& settings) {
  while (peer.hear() == "attempt") {
    ListeningSide listening(settings);
    peer.tell_value(listening.uri().port);
    peer.tell(verdict_on(listening.wait(), "handshake with "));
    peer.hear("both are done");
  }
}

struct Attempt {
  std::string client;
  std::string listener;
  std::array<std::size_t, 2> passed{};
  bool flipped = false;
};

Attempt attempt(Peer& peer, const Settings& settings, std::optional<OneByte> victim) {
  Attempt made;
  peer.tell("attempt");
  Tamperer middle(uri_of(peer.hear_value<std::uint16_t>()), victim);
  // The connection ends at once: the listener may still wait for more of the last word.
  made.client = verdict_on(connect_to(middle.uri(), settings), "connecting to ");
  made.listener = peer.hear();
  made.passed = {middle.passed(Way::kToListener), middle.passed(Way::kToClient)};
  made.flipped = middle.has_flipped();
  peer.tell("both are done");
  return made;
}

TEST_F(Middleman, WhoChangesAByteOfTheHandshakeGetsNoConnectionInClear) {
  run_pair(
      PeerMode::kProcesses, [](Peer& peer) { listen_for_attempts(peer, demanding()); },
      [](Peer& peer) {
        const Attempt whole = attempt(peer, demanding(), {});
        EXPECT_EQ(whole.client + whole.listener, "sealedsealed");
        for (const Way way : {Way::kToListener, Way::kToClient}) {
          unsigned unnoticed = 0;
          const std::size_t bytes = whole.passed[static_cast<std::size_t>(way)];
          for (const OneByte& victim : victims(way, bytes, 12, scaled(60))) {
            SCOPED_TRACE(testing::PrintToString(victim));
            Settings settings = demanding();
            Attempt changed;
            // On a busy machine the client may give up before the byte has come.
            for (settings.connect_timeout = kFirstPatience; !changed.flipped;
                 settings.connect_timeout *= 4)
              changed = attempt(peer, settings, victim);
            if (changed.client + changed.listener == "sealedsealed") ++unnoticed;
          }
          // RFC 8446, 5.1: the version in the header of a record in clear "MUST be ignored".
          EXPECT_LE(unnoticed, 2U);
        }
        peer.tell("over");
      });
}

TEST_F(Middleman, DisturbsNoOtherClientOfTheListener) {
  run_pair(
      PeerMode::kProcesses,
      [](Peer& peer) {
        Listener listener("127.0.0.1:0", demanding_options());
        peer.tell_value(listener.port());
        for (bool over = false; !over;) {
          Channel channel = listener.accept();
          EXPECT_EQ(channel.transport(), kSealedRing);
          try {
            const Message message = channel.receive();
            if (!message) continue;
            channel.send(message.bytes());
            over = message.text() == "over";
          } catch (const Error& error) {  // an end that was changed, or none
            EXPECT_THAT(error.code(),
                        testing::AnyOf(ErrorCode::kAuthentication, ErrorCode::kPeerDied));
          }
        }
      },
      [](Peer& peer) {
        const Uri uri = uri_of(static_cast<std::uint16_t>(peer.hear_value<unsigned>()));
        const auto expect_echo = [](Channel& channel, const std::string& text) {
          EXPECT_EQ(channel.transport(), kSealedRing);
          channel.send(text);
          EXPECT_EQ(channel.receive().text(), text);
        };
        const auto connect = [](const Uri& to, const Options& options) {
          return Channel::connect(host_and_port(to.host, to.port), options);
        };
        std::array<std::size_t, 2> bytes{};
        {
          Tamperer middle(uri, {});
          Channel channel = connect(middle.uri(), demanding_options());
          expect_echo(channel, "passed on as it is");
          bytes = {middle.passed(Way::kToListener), middle.passed(Way::kToClient)};
        }
        for (const Way way : {Way::kToListener, Way::kToClient}) {
          for (const OneByte& victim :
               victims(way, bytes[static_cast<std::size_t>(way)], 6, scaled(12))) {
            SCOPED_TRACE(testing::PrintToString(victim));
            Options options = demanding_options();
            options.connect_timeout = kFirstPatience;
            {
              Tamperer middle(uri, victim);
              try {
                const Channel channel = connect(middle.uri(), options);
                EXPECT_EQ(channel.transport(), kSealedRing);
              } catch (const Error& error) {
                EXPECT_THAT(error.code(), testing::AnyOf(ErrorCode::kAuthentication,
                                                         ErrorCode::kPeerDied, ErrorCode::kTimeout))
                    << error.what();
              }
            }
            Channel good = connect(uri, demanding_options());
            expect_echo(good, "good");
          }
        }
        Channel last = connect(uri, demanding_options());
        expect_echo(last, "over");
      });
}

// A listener that has the key, and answers that messages go in clear.
TEST_F(Middleman, AListenerThatAnswersInClearIsRefusedBeforeTheDeviceIsConnected) {
  for (const char* transport : {"ring", "chunked"}) {
    const Settings settings = demanding();
    Uri uri = uri_of(0);
    const Fd listening = listen_tcp(uri);
    uri.port = bound_port(listening.get());
    std::thread listener([&] {
      wait_ready(listening.get(), POLLIN, hang_deadline(), "nobody came");
      Fd socket(check(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept4"));
      TlsStream stream(std::move(socket),
                       std::make_unique<TlsContext>(settings, TlsRole::kPassive));
      stream.handshake(hang_deadline());
      std::vector<std::byte> hello(kHelloBytes);
      read_all(stream, hello, hang_deadline());
      EXPECT_TRUE(decode_hello(hello).seals);
      const auto device = open_device("shm", {});
      const auto offer = device->offer({}, "127.0.0.1");
      Answer answer;
      answer.nonce = decode_hello(hello).nonce;
      answer.device = answer.device_name = "shm";
      answer.transport = transport;
      answer.budget_ms = 10'000;
      answer.offer = offer->blob();
      write_all(stream, encode(answer), hang_deadline());
      std::vector<std::byte> frame(kResultBytes);
      read_all(stream, frame, hang_deadline());
      const Result result = decode_result(frame);
      EXPECT_TRUE(result.failed);
      EXPECT_EQ(result.code, ErrorCode::kUnavailable);
      EXPECT_THAT(result.text, testing::HasSubstr("confidential = require"));
      expect_error(ErrorCode::kTimeout, [&] { (void)offer->accept(Clock::now(), -1); });
      // As if nothing had been said.
      write_all(stream, encode(Result()), hang_deadline());
    });
    const LinkOutcome outcome = connect_to(uri, settings);
    listener.join();
    outcome.expect_error(ErrorCode::kPeerDied, {"no answer to the hello"});
  }
}

}  // namespace
}  // namespace leat::detail
