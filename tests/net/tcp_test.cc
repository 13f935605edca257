// Finding and reaching a listener.
#include "net/tcp.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "base/system_error.h"
#include "handshake/connection.h"
#include "support/link_pair.h"
#include "support/scale.h"

namespace leat::detail {
namespace {

Uri uri_of(const std::string& host, std::uint16_t port) {
  Uri uri;
  uri.host = host;
  uri.port = port;
  return uri;
}

template <typename Work>
Error error_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return {ErrorCode::kSystem, "none"};
}

void expect_words(const Error& error, std::initializer_list<const char*> words) {
  for (const char* word : words) {
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
        << "'" << word << "' is not in: " << error.what();
  }
}

// Bound but not listening: nobody else gets the port, and connecting is refused.
Fd bound_socket(std::uint16_t& port) {
  Fd socket(check(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  check(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), "bind");
  port = bound_port(socket.get());
  return socket;
}

TEST(TcpTest, ConnectsByNumberAndByName) {
  const Fd listener = listen_tcp(uri_of("localhost", 0));
  for (const char* host : {"localhost", "127.0.0.1", "::1"}) {
    const std::string address = local_address(listener.get());
    const bool six = address.front() == '[';
    if (std::string(host) != "localhost" && (std::string(host) == "::1") != six) continue;
    const Fd client = connect_tcp(uri_of(host, bound_port(listener.get())), hang_deadline(), false);
    EXPECT_EQ(peer_address(client.get()), address);
    EXPECT_EQ(host_and_port(peer_host(client.get()), bound_port(listener.get())), address);
  }
}

TEST(TcpTest, PeerThatHasResetTheConnectionIsDead) {
  const Fd listener = listen_tcp(uri_of("127.0.0.1", 0));
  const Fd client =
      connect_tcp(uri_of("127.0.0.1", bound_port(listener.get())), hang_deadline(), false);
  wait_ready(listener.get(), POLLIN, hang_deadline(), "nobody came");
  Fd newcomer(check(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept4"));
  const linger at_once{1, 0};
  check(setsockopt(newcomer.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), "setsockopt");
  newcomer.reset();
  wait_ready(client.get(), POLLIN, hang_deadline(), "no reset came");
  EXPECT_EQ(error_of([&] { (void)peer_address(client.get()); }).code(), ErrorCode::kPeerDied);
}

TEST(TcpTest, EmptyHostListensOnAllAddresses) {
  const Fd listener = listen_tcp(uri_of("", 0));
  const Fd client =
      connect_tcp(uri_of("127.0.0.1", bound_port(listener.get())), hang_deadline(), false);
  EXPECT_EQ(peer_host(client.get()), "127.0.0.1");
  wait_ready(listener.get(), POLLIN, hang_deadline(), "nobody came");
  const Fd newcomer(check(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept4"));
  // Also if the listener is an IPv6 socket.
  EXPECT_EQ(peer_host(newcomer.get()), "127.0.0.1");
  EXPECT_EQ(local_address(newcomer.get()), peer_address(client.get()));
}

TEST(TcpTest, ListenerDoesNotBlockAndIsNotInherited) {
  const Fd listener = listen_tcp(uri_of("127.0.0.1", 0));
  EXPECT_NE(fcntl(listener.get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(listener.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(TcpTest, PortInUseIsNamed) {
  const Fd listener = listen_tcp(uri_of("127.0.0.1", 0));
  const std::uint16_t port = bound_port(listener.get());
  const Error error = error_of([&] { listen_tcp(uri_of("127.0.0.1", port)); });
  EXPECT_EQ(error.code(), ErrorCode::kAddress);
  EXPECT_EQ(error.system_errno(), EADDRINUSE);
  expect_words(error, {("127.0.0.1:" + std::to_string(port)).c_str(), "ss -tlnp"});
}

TEST(TcpTest, AddressOfAnotherHostCannotBeListenedAt) {
  const Error error = error_of([] { listen_tcp(uri_of("192.0.2.1", 0)); });
  EXPECT_EQ(error.code(), ErrorCode::kAddress);
  expect_words(error, {"192.0.2.1", "ip address"});
}

// How long the kernel asks a silent peer before it gives it up.
std::chrono::seconds patience_of(int socket) {
  int count = 0;
  int interval = 0;
  socklen_t bytes = sizeof count;
  check(getsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &count, &bytes), "getsockopt");
  check(getsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, &bytes), "getsockopt");
  return std::chrono::seconds(count) * interval;
}

TEST(TcpTest, SilentPeerIsBorneAsLongAsItIsSaid) {
  const Fd socket(check(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
  prepare_socket(socket.get());
  EXPECT_EQ(patience_of(socket.get()), std::chrono::seconds(15));
  for (const auto patience : {std::chrono::milliseconds(0), std::chrono::milliseconds(20'001),
                              std::chrono::milliseconds(3'600'000)}) {
    outlast(socket.get(), patience);
    EXPECT_GE(patience_of(socket.get()), std::max(patience, std::chrono::milliseconds(15'000)));
    EXPECT_LE(patience_of(socket.get()), patience * 11 / 10 + std::chrono::seconds(15));
  }
  for (const auto endless : {std::chrono::milliseconds(-1), std::chrono::milliseconds::max()}) {
    outlast(socket.get(), endless);
    EXPECT_GE(patience_of(socket.get()), std::chrono::hours(24 * 40));
  }
}

TEST(TcpTest, RefusalIsFastAndSaysHowOftenItWasTried) {
  std::uint16_t port = 0;
  const Fd bound = bound_socket(port);
  const Error error = error_of([&] { connect_tcp(uri_of("127.0.0.1", port), kNoDeadline, false); });
  EXPECT_EQ(error.code(), ErrorCode::kRefused);
  EXPECT_EQ(error.system_errno(), ECONNREFUSED);
  expect_words(error,
               {"cannot connect to 127.0.0.1:", "after 1 try in", "because", "connect_retry"});
}

TEST(TcpTest, RetryEndsAtTheDeadlineAfterSeveralTries) {
  std::uint16_t port = 0;
  const Fd bound = bound_socket(port);
  const Error error = error_of([&] {
    connect_tcp(uri_of("127.0.0.1", port), deadline_after(std::chrono::milliseconds(200)), true);
  });
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  expect_words(error, {" tries in ", "refused"});
}

TEST(TcpTest, RetryLastsUntilTheDeadline) {
  std::uint16_t port = 0;
  const Fd bound = bound_socket(port);
  const auto start = Clock::now();
  // Its pauses double, and the next one would end after the deadline.
  constexpr std::chrono::milliseconds kLimit{1000};
  const Error error =
      error_of([&] { connect_tcp(uri_of("127.0.0.1", port), deadline_after(kLimit), true); });
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  EXPECT_GE(Clock::now() - start, kLimit * 9 / 10);
}

TEST(TcpTest, NoTryIsLostToAThreadThatHasNoCoreMeanwhile) {
  using std::chrono::milliseconds;
  const Clock::time_point now = Clock::now();
  const Deadline deadline = now + milliseconds(100);
  EXPECT_EQ(next_try(now, milliseconds(20), deadline), now + milliseconds(20));
  EXPECT_EQ(next_try(now, milliseconds(200), deadline), now + milliseconds(90));
  // However long ago `now` was by the time that this is asked.
  EXPECT_EQ(next_try(now - milliseconds(50), milliseconds(20), deadline), now - milliseconds(30));
  EXPECT_EQ(next_try(now + milliseconds(90), milliseconds(20), deadline), std::nullopt);
  EXPECT_EQ(next_try(now, milliseconds(20), kNoDeadline), now + milliseconds(20));
}

TEST(TcpTest, RetryReachesAListenerThatStartsLater) {
  std::uint16_t port = 0;
  const Fd bound = bound_socket(port);
  Fd client;
  std::thread connecting(
      [&] { client = connect_tcp(uri_of("127.0.0.1", port), hang_deadline(), true); });
  // The client's first try is refused or not: it must get through either way.
  std::this_thread::yield();
  check(listen(bound.get(), 1), "listen");
  connecting.join();
  EXPECT_EQ(peer_host(client.get()), "127.0.0.1");
}

TEST(TcpTest, ListenerThatDoesNotAnswerIsATimeout) {
  std::uint16_t port = 0;
  const Fd bound = bound_socket(port);
  check(listen(bound.get(), 0), "listen");
  // Connections that nobody accepts fill the backlog until the kernel answers no more.
  std::vector<Fd> waiting;
  Error error(ErrorCode::kSystem, "none");
  while (error.code() == ErrorCode::kSystem && waiting.size() < 64) {
    try {
      waiting.push_back(connect_tcp(uri_of("127.0.0.1", port),
                                    deadline_after(std::chrono::milliseconds(100)), true));
    } catch (const Error& caught) {
      error = caught;
    }
  }
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  expect_words(error, {"cannot connect to", "timed out", "4791"});
}

TEST(TcpTest, NameThatDoesNotResolve) {
  const Error error = error_of([] { connect_tcp(uri_of("a..b", 1), hang_deadline(), false); });
  EXPECT_EQ(error.code(), ErrorCode::kAddress);
  expect_words(error, {"'a..b' cannot be resolved"});
}

TEST(TcpTest, AddressWithoutHostOrPortIsTheCallersMistake) {
  EXPECT_EQ(error_of([] { connect_tcp(uri_of("", 1), kNoDeadline, false); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([] { connect_tcp(uri_of("localhost", 0), kNoDeadline, false); }).code(),
            ErrorCode::kInvalidArgument);
}

TEST(TcpTest, PortThatConnectsToItselfIsRefused) {
  // A free ephemeral port: now and then the kernel lends it to the very socket that connects to it.
  std::uint16_t port = 0;
  { const Fd bound = bound_socket(port); }
  for (int i = 0; i < 3000; ++i) {
    EXPECT_THROW(connect_tcp(uri_of("127.0.0.1", port), kNoDeadline, false), Error);
  }
}

int option(int socket, int level, int name) {
  int value = 0;
  socklen_t bytes = sizeof value;
  check(getsockopt(socket, level, name, &value, &bytes), "getsockopt");
  return value;
}

TEST(StreamTest, SocketIsPreparedForALongLife) {
  const Fd listener = listen_tcp(uri_of("127.0.0.1", 0));
  const auto stream = plain_stream(
      connect_tcp(uri_of("127.0.0.1", bound_port(listener.get())), hang_deadline(), false));
  const int fd = stream->fd();
  EXPECT_NE(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_KEEPIDLE), 10);
  EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_KEEPINTVL), 5);
  EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_KEEPCNT), 3);
  // It would end connections to a peer that lives but does not read.
  EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
  EXPECT_FALSE(stream->encrypted());
}

struct StreamPair {
  StreamPair() {
    const Fd listener = listen_tcp(uri_of("127.0.0.1", 0));
    active = plain_stream(
        connect_tcp(uri_of("127.0.0.1", bound_port(listener.get())), hang_deadline(), false));
    wait_ready(listener.get(), POLLIN, hang_deadline(), "nobody came");
    passive =
        plain_stream(Fd(check(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept4")));
  }
  std::unique_ptr<Stream> active;
  std::unique_ptr<Stream> passive;
};

TEST(StreamTest, WouldBlockIsNoValueAndTheEndIsZero) {
  StreamPair pair;
  std::vector<std::byte> bytes(1 << 20);
  EXPECT_FALSE(pair.active->try_read(bytes));
  std::size_t sent = 0;
  while (const auto more = pair.active->try_write(bytes)) sent += *more;
  EXPECT_GT(sent, 0U);
  pair.active.reset();
  std::size_t got = 0;
  for (;;) {
    wait_ready(pair.passive->fd(), POLLIN, hang_deadline(), "no end");
    const auto more = pair.passive->try_read(bytes);
    if (more == std::size_t{0}) break;
    got += more.value_or(0);
  }
  EXPECT_EQ(got, sent);
}

TEST(StreamTest, PeerClosedLooksPastUnreadBytes) {
  StreamPair pair;
  const std::vector<std::byte> bytes(10);
  std::vector<std::byte> room(20);
  write_all(*pair.active, bytes, hang_deadline());
  EXPECT_FALSE(pair.passive->peer_closed());
  pair.active.reset();
  wait_ready(pair.passive->fd(), POLLRDHUP, hang_deadline(), "no end");
  EXPECT_TRUE(pair.passive->peer_closed());
  EXPECT_EQ(pair.passive->try_read(room), bytes.size());
}

TEST(StreamTest, WritingToAPeerThatIsGoneIsAnErrorAndNoSignal) {
  StreamPair pair;
  pair.passive.reset();
  const std::vector<std::byte> bytes(1000);
  const Error error = error_of([&] {
    for (;;) write_all(*pair.active, bytes, hang_deadline());
  });
  EXPECT_EQ(error.code(), ErrorCode::kPeerDied);
}

TEST(StreamTest, AbortWakesAReader) {
  StreamPair pair;
  std::vector<std::byte> bytes(1);
  std::thread reader([&] {
    EXPECT_EQ(error_of([&] { read_all(*pair.active, bytes, hang_deadline()); }).code(),
              ErrorCode::kPeerDied);
  });
  pair.active->abort();
  reader.join();
}

TEST(StreamTest, DeadlinesOfReadAllAndWriteAll) {
  StreamPair pair;
  std::vector<std::byte> bytes(64 << 20);
  const auto soon = [] { return deadline_after(std::chrono::milliseconds(20)); };
  EXPECT_EQ(error_of([&] { read_all(*pair.active, bytes, soon()); }).code(), ErrorCode::kTimeout);
  EXPECT_EQ(error_of([&] { write_all(*pair.active, bytes, soon()); }).code(), ErrorCode::kTimeout);
}

}  // namespace
}  // namespace leat::detail
