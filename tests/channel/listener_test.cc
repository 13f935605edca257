// What listeners promise, on every transport.
#include "leat/listener.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/system_error.h"
#include "channel/stranger.h"
#include "handshake/hello.h"
#include "support/channel_side.h"
#include "support/leaks.h"
#include "verbs/host_identity.h"

namespace leat::detail {
namespace {

constexpr std::chrono::milliseconds kShort{50};

// The timeout of handshakes where strangers must run into it and clients must not, also on an
// emulated machine whose processors are busy with the strangers.
constexpr std::chrono::seconds kHandshake{10};

// Hangs up with a reset, so that the other end has no peer any more.
void reset(Fd socket) {
  const linger at_once{1, 0};
  check(::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), "setsockopt");
}

// Strangers of all kinds; the connections of those that wait for an answer stay open.
std::vector<Fd> strangers(unsigned port, int count) {
  std::mt19937_64 random(11);
  std::vector<Fd> open;
  for (int i = 0; i < count; ++i) {
    Fd socket = knock(port);
    std::string junk(1 + random() % 3000, '\0');
    for (char& byte : junk) byte = static_cast<char>(random());
    switch (i % 6) {
      case 0:
        break;  // silent
      case 1:
        say(socket, junk);
        break;
      case 2:
        say(socket, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        break;
      case 3:
        say(socket, junk.substr(0, 1));
        socket.reset();
        break;
      case 4:
        say(socket, std::string(200'000, '\xff'));
        break;
      case 5:
        reset(std::move(socket));
        break;
    }
    if (socket) open.push_back(std::move(socket));
  }
  return open;
}

class ListenerTest : public testing::TestWithParam<ChannelKind> {
 protected:
  Options options() const { return channel_options(GetParam()); }
  std::string any_port() const { return listening_address(GetParam()); }

  // Connects, says a word and hears it back.
  void expect_served(const std::string& address) const {
    Channel channel = Channel::connect(address, options());
    channel.send("anyone there?");
    EXPECT_EQ(channel.receive().text(), "anyone there?");
  }
  static void serve(Channel channel) {
    const Message message = channel.receive();
    channel.send(message.text());
    EXPECT_FALSE(channel.receive());
  }
};

TEST_P(ListenerTest, AddressHasThePortThatTheSystemChose) {
  const Listener listener(any_port(), options());
  EXPECT_NE(listener.port(), 0u);
  EXPECT_TRUE(listener.address().ends_with(":" + std::to_string(listener.port())));
}

TEST_P(ListenerTest, PortInUseIsAnAddressError) {
  const Listener listener(any_port(), options());
  expect_error(ErrorCode::kAddress, [&] { const Listener other(listener.address(), options()); });
}

TEST_P(ListenerTest, MalformedAddressesAreInvalidArguments) {
  for (const char* address : {"", ":", "host", "127.0.0.1:70000", "127.0.0.1:x", "leat://",
                              "http://127.0.0.1:0", "leat://127.0.0.1:0?no_such_setting=1"}) {
    SCOPED_TRACE(address);
    expect_error(ErrorCode::kInvalidArgument, [&] { const Listener other(address, options()); });
  }
}

TEST_P(ListenerTest, AcceptThrowsAtItsTimeout) {
  Options short_timeout = options();
  short_timeout.timeout = kShort;
  Listener listener(any_port(), short_timeout);
  expect_error(ErrorCode::kTimeout, [&] { (void)listener.accept(); });
  expect_error(ErrorCode::kTimeout, [&] { (void)listener.accept(); });
}

TEST_P(ListenerTest, TryAcceptWithoutANewcomerGivesNoValue) {
  Listener listener(any_port(), options());
  EXPECT_FALSE(listener.try_accept());
}

TEST_P(ListenerTest, CloseWakesEveryAcceptAndFreesThePort) {
  Listener listener(any_port(), options());
  std::atomic<int> accepting = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      ++accepting;
      expect_error(ErrorCode::kClosed, [&] { (void)listener.accept(); });
    });
  }
  while (accepting != 3) std::this_thread::yield();
  listener.close();
  listener.close();
  for (std::thread& thread : threads) thread.join();
  expect_error(ErrorCode::kClosed, [&] { (void)listener.accept(); });
  expect_error(ErrorCode::kClosed, [&] { (void)listener.try_accept(); });
  const Listener other(listener.address(), options());
}

TEST_P(ListenerTest, MovedListenerGoesOn) {
  Listener first(any_port(), options());
  const std::string address = first.address();
  Listener listener(std::move(first));
  std::thread server([&] { serve(listener.accept()); });
  expect_served(address);
  server.join();
}

TEST_P(ListenerTest, ConnectWhereNobodyListensIsRefused) {
  std::string address;
  {
    const Listener gone(any_port(), options());
    address = gone.address();
  }
  expect_error(ErrorCode::kRefused, [&] { (void)Channel::connect(address, options()); });
}

TEST_P(ListenerTest, ConnectWithRetryWaitsForTheListener) {
  std::string address;
  {
    const Listener gone(any_port(), options());
    address = gone.address();
  }
  std::thread client([&] {
    Options patient = options();
    patient.connect_retry = true;
    Channel channel = Channel::connect(address, patient);
    channel.send("hello");
    EXPECT_EQ(channel.receive().text(), "hello");
  });
  // The client may try before or after: both orders must work.
  std::this_thread::yield();
  Listener listener(address, options());
  serve(listener.accept());
  client.join();
}

TEST_P(ListenerTest, ConnectToAStrangerIsAnErrorWithinItsTimeout) {
  const Fd silent(check(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
  check(::listen(silent.get(), 5), "listen");
  sockaddr_in address{};
  socklen_t bytes = sizeof(address);
  check(::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&address), &bytes), "getsockname");
  Options impatient = options();
  impatient.connect_timeout = kShort;
  const std::string port = std::to_string(ntohs(address.sin_port));
  expect_error(ErrorCode::kTimeout,
               [&] { (void)Channel::connect("127.0.0.1:" + port, impatient); });
}

TEST_P(ListenerTest, StrangersDoNotHoldUpTheGoodNewcomer) {
  Listener listener("127.0.0.1:0", options());
  const std::vector<Fd> open = strangers(listener.port(), 50);
  std::thread server([&] { serve(listener.accept()); });
  expect_served(listener.address());
  server.join();
}

TEST_P(ListenerTest, ManySilentStrangersAreTurnedAwayAtTheHandshakesTimeout) {
  Options impatient = options();
  impatient.handshake_timeout = kHandshake;
  Listener listener("127.0.0.1:0", impatient);
  std::vector<Fd> silent;
  for (int i = 0; i < 150; ++i) silent.push_back(knock(listener.port()));
  std::thread server([&] { serve(listener.accept()); });
  expect_served(listener.address());
  server.join();
}

TEST_P(ListenerTest, StrangersLeaveNothingBehind) {
  Options impatient = options();
  impatient.handshake_timeout = kHandshake;
  Listener listener("127.0.0.1:0", impatient);
  const auto round = [&] {
    std::vector<Fd> open = strangers(listener.port(), 30);
    std::thread server([&] { serve(listener.accept()); });
    expect_served(listener.address());
    server.join();
  };
  round();
  const Holdings before = count_holdings();
  for (int i = 0; i < 5; ++i) round();
  // Strangers that came last are looked at while somebody accepts.
  const Deadline deadline = notice_deadline();
  while (count_holdings().descriptors > before.descriptors && !passed(deadline)) {
    EXPECT_FALSE(listener.try_accept());
    std::this_thread::yield();
  }
  expect_no_more_than(before, std::size_t{16} << 20);
}

// The threads of this process, by number.
std::set<std::string> threads() {
  std::set<std::string> numbers;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    numbers.insert(entry.path().filename());
  return numbers;
}

// Whether that thread blocks every signal except SIGKILL, SIGSTOP and those of the C library.
bool holds_signals(const std::string& thread) {
  std::ifstream status("/proc/self/task/" + thread + "/status");
  std::string line;
  while (std::getline(status, line)) {
    if (!line.starts_with("SigBlk:")) continue;
    const std::uint64_t held = std::stoull(line.substr(7), nullptr, 16);
    return (held >> (SIGUSR1 - 1) & held >> (SIGTERM - 1) & held >> (SIGALRM - 1) & 1) != 0;
  }
  return false;
}

TEST_P(ListenerTest, DoorAndHandshakesTakeNoneOfTheProgramsSignals) {
  const std::set<std::string> before = threads();
  Listener listener("127.0.0.1:0", options());
  const Fd client = knock(listener.port());
  Hello hello;
  hello.device("shm").use = hello.device("tcp").use = DeviceUse::kAllowed;
  hello.host = host_identity();
  const auto bytes = encode(hello);
  say(client, bytes);
  std::set<std::string> made;
  for (const Deadline deadline = notice_deadline(); made.size() < 2 && !passed(deadline);) {
    EXPECT_FALSE(listener.try_accept());
    made = threads();
    std::erase_if(made, [&](const std::string& thread) { return before.contains(thread); });
  }
  EXPECT_GE(made.size(), 2u);
  for (const std::string& thread : made) EXPECT_TRUE(holds_signals(thread)) << thread;
}

TEST_P(ListenerTest, DestroyedWhileStrangersKnockIsSafe) {
  for (int i = 0; i < 20; ++i) {
    Listener listener("127.0.0.1:0", options());
    const std::vector<Fd> open = strangers(listener.port(), 10);
    EXPECT_FALSE(listener.try_accept());
  }
}

TEST_P(ListenerTest, EventLoopAcceptsByItsDescriptor) {
  static constexpr int kCount = 5;
  Listener listener(any_port(), options());
  std::thread clients([&] {
    for (int i = 0; i < kCount; ++i) expect_served(listener.address());
  });
  for (int accepted = 0; accepted < kCount;) {
    pollfd wait{listener.fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&wait, 1, poll_timeout_ms(hang_deadline())), 1);
    if (auto channel = listener.try_accept()) {
      serve(std::move(*channel));
      ++accepted;
    }
  }
  clients.join();
}

TEST_P(ListenerTest, AsManyStrangersAsItHearsLeaveItAsleepAndKeepNobodyOutForGood) {
  static constexpr int kMoreThanItHears = 65;
  Listener listener("127.0.0.1:0", options());
  std::vector<Fd> silent;
  for (int i = 0; i < kMoreThanItHears; ++i) silent.push_back(knock(listener.port()));
  EXPECT_FALSE(listener.try_accept());
  pollfd wait{listener.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&wait, 1, 0), 0) << "a thread that polls fd() would spin";
  silent.clear();
  std::thread server([&] { serve(listener.accept()); });
  expect_served(listener.address());
  server.join();
}

TEST_P(ListenerTest, SeveralThreadsMayAccept) {
  static constexpr int kThreads = 4;
  static constexpr int kPerThread = 5;
  Listener listener(any_port(), options());
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < kPerThread; ++j) serve(listener.accept());
    });
    threads.emplace_back([&] {
      for (int j = 0; j < kPerThread; ++j) expect_served(listener.address());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Clients are accepted in the order of connecting, whichever handshake's thread is first.
TEST_P(ListenerTest, AcceptsInTheOrderOfConnecting) {
  Listener listener(any_port(), options());
  constexpr int kClients = 30;
  std::vector<std::string> accepted;
  std::vector<Channel> kept;
  std::thread server([&] {
    for (int i = 0; i < kClients; ++i) {
      kept.push_back(listener.accept());
      accepted.push_back(kept.back().peer_address());
    }
  });
  std::vector<std::string> connected;
  std::vector<Channel> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(Channel::connect(listener.address(), options()));
    connected.push_back(clients.back().local_address());
  }
  server.join();
  EXPECT_EQ(accepted, connected);
}

TEST_P(ListenerTest, ConnectionThatNobodyAcceptedEndsWithTheListener) {
  auto listener = std::make_unique<Listener>(any_port(), options());
  const std::string address = listener->address();
  std::thread client([&] {
    try {
      Channel channel = Channel::connect(address, options());
      EXPECT_FALSE(channel.receive());
    } catch (const Error&) {
      // Also fine: turned away before or after it was connected.
    }
  });
  pollfd wait{listener->fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&wait, 1, poll_timeout_ms(hang_deadline())), 1);
  listener.reset();
  client.join();
}

TEST_P(ListenerTest, ClientThatDemandsAnotherTransportGetsAnErrorAndTheNextIsServed) {
  Listener listener(any_port(), options());
  std::thread server([&] { serve(listener.accept()); });
  const bool is_tcp = GetParam().transport == "tcp";
  Options other = options();
  other.device = is_tcp ? "shm" : "tcp";
  other.transport = is_tcp ? "ring" : "tcp";
  expect_error(ErrorCode::kUnavailable, [&] { (void)Channel::connect(listener.address(), other); });
  expect_served(listener.address());
  server.join();
}

// All that the listener knows of transports is that tcp needs no device.
std::vector<ChannelKind> ring_and_tcp() {
  std::vector<ChannelKind> kinds = channel_kinds();
  std::erase_if(kinds, [](const ChannelKind& kind) {
    return kind.transport != "ring" && kind.transport != "tcp";
  });
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Channels, ListenerTest, testing::ValuesIn(ring_and_tcp()),
                         testing::PrintToStringParamName());

TEST(ListenerOfIPv6, Serves) {
  const ChannelKind kind{"ring", "shm"};
  Listener listener("[::1]:0", channel_options(kind));
  EXPECT_TRUE(listener.address().starts_with("[::1]:")) << listener.address();
  std::thread server([&] { EXPECT_EQ(listener.accept().receive().text(), "six"); });
  Channel channel = Channel::connect(listener.address(), channel_options(kind));
  channel.send("six");
  EXPECT_FALSE(channel.receive());
  server.join();
}

}  // namespace
}  // namespace leat::detail
