// What a listener does with newcomers that do not, or not quite, speak leat's protocol; and a
// client with such listeners.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "base/system_error.h"
#include "handshake/hello.h"
#include "net/tcp.h"
#include "support/leaks.h"
#include "support/link_pair.h"
#include "support/scale.h"

namespace leat::detail {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::chrono::milliseconds kShort{150};
const std::string kOurVersion = "version " + std::to_string(kProtocolVersion);
const std::string kNextVersion = "version " + std::to_string(kProtocolVersion + 1) + " ";

Settings short_settings(const std::string& device) {
  Settings settings = link_settings(device);
  settings.handshake_timeout = kShort;
  settings.connect_timeout = kShort;
  return settings;
}

Hello hello_for_tcp() {
  Hello hello;
  hello.device("tcp").use = DeviceUse::kAllowed;
  hello.device_setting = "tcp";
  return hello;
}

// A side that is ready, with transport tcp's setup.
Result ready_for_tcp() {
  Result result;
  result.setup.assign(8, std::byte{});
  result.setup[2] = std::byte{1};  // max_message_bytes
  return result;
}

// The same, with a setup that says to be longer than it can be.
Bytes result_with_a_setup_too_long() {
  Bytes frame = encode(ready_for_tcp());
  const std::uint16_t count = kMaxSetupBytes + 1;
  std::memcpy(&frame[kResultBytes - kMaxSetupBytes - sizeof count], &count, sizeof count);
  return frame;
}

// --- a listener and odd newcomers

TEST(StrangersTest, HttpIsNamedAndDisconnected) {
  ListeningSide listening(link_settings("auto"));
  Fd stranger = raw_connection(listening.uri());
  const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  raw_send(stranger.get(), request.data(), request.size());
  EXPECT_EQ(raw_receive_all(stranger.get()), "") << "disconnected without a word";
  listening.wait().expect_error(ErrorCode::kProtocol,
                                {"handshake with 127.0.0.1:", "HTTP: 'GET /"});
}

TEST(StrangersTest, RandomBytesAreNamedAndDisconnected) {
  std::mt19937 random(99);
  for (int round = 0; round < 20; ++round) {
    ListeningSide listening(link_settings("auto"));
    Fd stranger = raw_connection(listening.uri());
    std::string junk(kFrameHeaderBytes + random() % 100'000, '\0');
    for (char& c : junk) c = static_cast<char>(random() | 0x80);  // neither leat nor TLS
    raw_send(stranger.get(), junk.data(), junk.size());
    EXPECT_EQ(raw_receive_all(stranger.get()), "");
    listening.wait().expect_error(ErrorCode::kProtocol, {"expected leat's hello"});
  }
}

TEST(StrangersTest, SilenceEndsAtTheDeadline) {
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{5}, kFrameHeaderBytes, kHelloBytes / 2, kHelloBytes - 1}) {
    ListeningSide listening(short_settings("auto"));
    Fd stranger = raw_connection(listening.uri());
    const Bytes hello = encode(hello_for_tcp());
    raw_send(stranger.get(), hello.data(), count);
    listening.wait().expect_error(ErrorCode::kTimeout, {"no hello", "in time"});
    EXPECT_EQ(raw_receive_all(stranger.get()), "");
  }
}

TEST(StrangersTest, HalfAHelloAndTheEndIsAnErrorAtOnce) {
  ListeningSide listening(link_settings("auto"));
  {
    Fd stranger = raw_connection(listening.uri());
    const Bytes hello = encode(hello_for_tcp());
    raw_send(stranger.get(), hello.data(), hello.size() / 2);
  }
  listening.wait().expect_error(ErrorCode::kPeerDied, {"no hello", "ended the connection"});
}

TEST(StrangersTest, BytesThatTrickleInAreAHelloToo) {
  ListeningSide listening(link_settings("auto"));
  const Fd client = raw_connection(listening.uri());
  for (const std::byte byte : encode(hello_for_tcp())) raw_send(client.get(), &byte, 1);
  Bytes answer(kAnswerBytes);
  ASSERT_EQ(recv(client.get(), answer.data(), answer.size(), MSG_WAITALL),
            static_cast<ssize_t>(answer.size()));
  EXPECT_EQ(decode_answer(answer).device, "tcp");
  Bytes result(kResultBytes);
  ASSERT_EQ(recv(client.get(), result.data(), result.size(), MSG_WAITALL),
            static_cast<ssize_t>(result.size()));
  for (const std::byte byte : encode(ready_for_tcp())) raw_send(client.get(), &byte, 1);
  EXPECT_EQ(listening.wait().get().transport_name, "tcp");
}

TEST(StrangersTest, TricklingBytesDoNotStretchTheDeadline) {
  ListeningSide listening(short_settings("auto"));
  Fd stranger = raw_connection(listening.uri());
  const Bytes hello = encode(hello_for_tcp());
  // One byte each time the listener could have lost patience, until it has.
  pollfd wait{stranger.get(), POLLRDHUP, 0};
  std::size_t sent = 0;
  while (sent < hello.size() && poll(&wait, 1, 10) == 0)
    raw_send(stranger.get(), &hello[sent++], 1);
  EXPECT_LT(sent, hello.size());
  listening.wait().expect_error(ErrorCode::kTimeout, {"no hello"});
}

TEST(StrangersTest, OtherVersionIsToldBothVersions) {
  ListeningSide listening(link_settings("auto"));
  Fd stranger = raw_connection(listening.uri());
  Bytes hello = encode(hello_for_tcp());
  hello[4] = std::byte{kProtocolVersion + 1};
  raw_send(stranger.get(), hello.data(), hello.size());
  const std::string answer = raw_receive_all(stranger.get());
  stranger.reset();
  const Answer refusal = decode_answer(std::as_bytes(std::span(answer)));
  EXPECT_TRUE(refusal.refused);
  EXPECT_EQ(refusal.code, ErrorCode::kVersion);
  EXPECT_NE(refusal.text.find(kNextVersion), std::string::npos) << refusal.text;
  EXPECT_NE(refusal.text.find(kOurVersion), std::string::npos) << refusal.text;
  listening.wait().expect_error(ErrorCode::kVersion, {kNextVersion.c_str(), kOurVersion.c_str()});
}

TEST(StrangersTest, TlsWithoutKeysIsToldSo) {
  ListeningSide listening(link_settings("auto"));
  Fd stranger = raw_connection(listening.uri());
  const std::string client_hello("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\x00", 13);
  raw_send(stranger.get(), client_hello.data(), client_hello.size());
  raw_receive_all(stranger.get());
  stranger.reset();
  listening.wait().expect_error(ErrorCode::kAuthentication, {"speaks TLS", "tls_*"});
}

TEST(StrangersTest, UnknownTransportIsRefusedWithTheOnesThereAre) {
  ListeningSide listening(link_settings("auto"));
  Fd stranger = raw_connection(listening.uri());
  Hello hello = hello_for_tcp();
  hello.transport = "pigeon";
  const Bytes bytes = encode(hello);
  raw_send(stranger.get(), bytes.data(), bytes.size());
  const std::string answer = raw_receive_all(stranger.get());
  stranger.reset();
  const Answer refusal = decode_answer(std::as_bytes(std::span(answer)));
  EXPECT_EQ(refusal.code, ErrorCode::kUnavailable);
  EXPECT_NE(refusal.text.find("auto, ring"), std::string::npos) << refusal.text;
  listening.wait().expect_error(ErrorCode::kUnavailable, {"'pigeon'"});
}

// The client dies at each step of a handshake for shm.
TEST(StrangersTest, ClientThatDiesMidWayIsNoticedAtOnceAndLeavesNothing) {
  const auto die_after = [](int step) {
    ListeningSide listening(link_settings("auto"));
    {
      const Fd client = raw_connection(listening.uri());
      Hello hello;
      hello.host = host_identity();
      for (const DeviceRow& kind : device_rows()) hello.device(kind.kind).use = DeviceUse::kAllowed;
      const Bytes bytes = encode(hello);
      if (step >= 1) raw_send(client.get(), bytes.data(), bytes.size());
      Bytes answer(kAnswerBytes);
      if (step >= 2) {
        ASSERT_EQ(recv(client.get(), answer.data(), answer.size(), MSG_WAITALL),
                  static_cast<ssize_t>(answer.size()));
        ASSERT_EQ(decode_answer(answer).device, "shm");
      }
      if (step >= 3) {  // gives shm up, and dies while the next device is set up
        const Bytes result = encode(Result{true, ErrorCode::kResource, "no memory", {}});
        raw_send(client.get(), result.data(), result.size());
      }
    }
    EXPECT_TRUE(listening.wait().error);
    EXPECT_EQ(listening.wait().error->code(), ErrorCode::kPeerDied) << listening.wait().text();
  };
  die_after(2);
  const Holdings before = count_holdings();
  for (int step = 0; step <= 3; ++step) die_after(step);
  expect_no_more_than(before, std::size_t{1} << 20);
}

TEST(StrangersTest, ClientWhoseResultIsJunkIsAnError) {
  ListeningSide listening(link_settings("tcp"));
  const Fd client = raw_connection(listening.uri());
  const Bytes hello = encode(hello_for_tcp());
  raw_send(client.get(), hello.data(), hello.size());
  const Bytes junk(kResultBytes, std::byte{0xee});
  raw_send(client.get(), junk.data(), junk.size());
  listening.wait().expect_error(ErrorCode::kProtocol, {"expected leat's result"});
}

TEST(StrangersTest, ClientWhoseSetupIsTooLargeIsAnError) {
  ListeningSide listening(link_settings("tcp"));
  const Fd client = raw_connection(listening.uri());
  const Bytes hello = encode(hello_for_tcp());
  raw_send(client.get(), hello.data(), hello.size());
  const Bytes result = result_with_a_setup_too_long();
  raw_send(client.get(), result.data(), result.size());
  listening.wait().expect_error(ErrorCode::kProtocol, {"result", "setup"});
}

// --- a client and odd listeners

// Serves one client with `work` in a thread, after its hello was read.
class OddListener {
 public:
  explicit OddListener(std::function<void(int socket, const Hello& hello)> work) {
    uri_.host = "127.0.0.1";
    socket_ = listen_tcp(uri_);
    uri_.port = bound_port(socket_.get());
    thread_ = std::thread([this, work = std::move(work)] {
      wait_ready(socket_.get(), POLLIN, hang_deadline(), "nobody came");
      const Fd client(check(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept4"));
      Bytes hello(kHelloBytes);
      EXPECT_EQ(recv(client.get(), hello.data(), hello.size(), MSG_WAITALL),
                static_cast<ssize_t>(hello.size()));
      work(client.get(), decode_hello(hello));
    });
  }
  OddListener(const OddListener&) = delete;
  OddListener& operator=(const OddListener&) = delete;
  ~OddListener() { thread_.join(); }

  const Uri& uri() const { return uri_; }

 private:
  Uri uri_;
  Fd socket_;
  std::thread thread_;
};

void send_frame(int socket, const Bytes& frame) { raw_send(socket, frame.data(), frame.size()); }

Answer answer_for(const Hello& hello) {
  Answer answer;
  answer.nonce = hello.nonce;
  answer.device = "tcp";
  answer.transport = "tcp";
  answer.device_name = "tcp";
  answer.budget_ms = 1000;
  return answer;
}

void expect_client_error(const std::function<void(int, const Hello&)>& work, ErrorCode code,
                         std::initializer_list<const char*> words,
                         const Settings& settings = link_settings("tcp")) {
  const OddListener listener(work);
  connect_to(listener.uri(), settings).expect_error(code, words);
}

TEST(OddListenersTest, EndInsteadOfAnAnswer) {
  expect_client_error([](int, const Hello&) {}, ErrorCode::kPeerDied,
                      {"connecting to 127.0.0.1:", "no answer to the hello"});
}

TEST(OddListenersTest, JunkInsteadOfAnAnswer) {
  expect_client_error([](int socket, const Hello&) { raw_send(socket, "220 smtp ready\r\n", 16); },
                      ErrorCode::kProtocol, {"'220 smtp rea"});
}

TEST(OddListenersTest, SilenceEndsAtTheDeadline) {
  expect_client_error([](int socket, const Hello&) { raw_receive_all(socket); },
                      ErrorCode::kTimeout, {"no answer to the hello"}, short_settings("tcp"));
}

TEST(OddListenersTest, OtherVersion) {
  expect_client_error(
      [](int socket, const Hello& hello) {
        Bytes frame = encode(answer_for(hello));
        frame[4] = std::byte{2};
        send_frame(socket, frame);
      },
      ErrorCode::kVersion, {"version 2 ", ("this side " + kOurVersion).c_str()});
}

TEST(OddListenersTest, AnswerForAnotherHello) {
  expect_client_error(
      [](int socket, const Hello& hello) {
        Answer answer = answer_for(hello);
        answer.nonce[3] ^= 1;
        send_frame(socket, encode(answer));
      },
      ErrorCode::kProtocol, {"not for our hello"});
}

TEST(OddListenersTest, DeviceOrTransportThatWeDoNotWant) {
  expect_client_error(
      [](int socket, const Hello& hello) {
        Answer answer = answer_for(hello);
        answer.device = "shm";
        answer.transport = "ring";
        send_frame(socket, encode(answer));
      },
      ErrorCode::kProtocol, {"shm, which we exclude"});
  for (const char* device : {"pigeon", "", "tcp:1", "ib:rxe0"}) {
    expect_client_error(
        [device](int socket, const Hello& hello) {
          Answer answer = answer_for(hello);
          answer.device = device;
          send_frame(socket, encode(answer));
        },
        ErrorCode::kProtocol, {"which we do not know"});
  }
  for (const char* transport : {"ring", "pigeon", ""}) {
    expect_client_error(
        [transport](int socket, const Hello& hello) {
          Answer answer = answer_for(hello);
          answer.transport = transport;
          send_frame(socket, encode(answer));
        },
        ErrorCode::kProtocol, {"chose transport"});
  }
}

TEST(OddListenersTest, SetupThatIsTooLarge) {
  expect_client_error(
      [](int socket, const Hello& hello) {
        send_frame(socket, encode(answer_for(hello)));
        send_frame(socket, result_with_a_setup_too_long());
        raw_receive_all(socket);
      },
      ErrorCode::kProtocol, {"result", "setup"});
}

TEST(OddListenersTest, SameDeviceAgain) {
  expect_client_error(
      [](int socket, const Hello& hello) {
        for (int i = 0; i < 2; ++i) {
          send_frame(socket, encode(answer_for(hello)));
          send_frame(socket, encode(Result{true, ErrorCode::kSystem, "again", {}}));
        }
        raw_receive_all(socket);
      },
      ErrorCode::kProtocol, {"offers a device again"});
}

TEST(OddListenersTest, OfferThatIsJunkGoesOnToTheNextDevice) {
  const OddListener listener([](int socket, const Hello& hello) {
    Answer answer = answer_for(hello);
    answer.device = "shm";
    answer.transport = "ring";
    answer.offer = Bytes(200, std::byte{0xcd});
    send_frame(socket, encode(answer));
    Bytes result(kResultBytes);
    ASSERT_EQ(recv(socket, result.data(), result.size(), MSG_WAITALL),
              static_cast<ssize_t>(result.size()));
    EXPECT_TRUE(decode_result(result).failed);
    send_frame(socket, encode(Result{true, ErrorCode::kPeerDied, "nobody came", {}}));
    send_frame(socket, encode(answer_for(hello)));
    send_frame(socket, encode(ready_for_tcp()));
    raw_receive_all(socket);
  });
  LinkOutcome outcome = connect_to(listener.uri(), link_settings("auto"));
  EXPECT_EQ(outcome.get().device_name, "tcp");
}

TEST(OddListenersTest, RefusalIsPassedOnWithItsCode) {
  expect_client_error(
      [](int socket, const Hello&) {
        Answer refusal;
        refusal.refused = true;
        refusal.code = ErrorCode::kResource;
        refusal.text = "too many channels";
        send_frame(socket, encode(refusal));
      },
      ErrorCode::kResource, {"the listener refused: too many channels"});
}

}  // namespace
}  // namespace leat::detail
