// What the functions of leat/c.h promise: BSD's meaning, errno, and a sentence.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "capi/text.h"
#include "leat/c.h"
#include "support/devices.h"
#include "support/leaks.h"
#include "support/pattern.h"
#include "support/peer_pair.h"
#include "support/scale.h"
#include "support/scratch.h"

namespace leat::detail {
namespace {

// `host` empty: the loopback.
sockaddr_in address_of(const std::string& host, unsigned port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (!host.empty()) {
    EXPECT_EQ(inet_pton(AF_INET, host.c_str(), &address.sin_addr), 1);
  }
  return address;
}

sockaddr_in loopback(unsigned port) { return address_of({}, port); }

const sockaddr* generic(const sockaddr_in& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

unsigned port_of(int handle) {
  sockaddr_in address{};
  socklen_t bytes = sizeof(address);
  EXPECT_EQ(leat_getsockname(handle, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  EXPECT_EQ(bytes, sizeof(address));
  EXPECT_EQ(address.sin_family, AF_INET);
  return ntohs(address.sin_port);
}

// The call fails with that errno and leaves a sentence.
void expect_errno(int code, const std::function<ssize_t()>& call) {
  errno = 0;
  EXPECT_EQ(call(), -1);
  EXPECT_EQ(errno, code) << std::strerror(errno) << ": " << leat_last_error();
  EXPECT_GT(std::strlen(leat_last_error()), 5u);
}

int listen_somewhere(const std::string& host = {}) {
  const int handle = leat_socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_GE(handle, 0) << leat_last_error();
  const sockaddr_in any = address_of(host, 0);
  EXPECT_EQ(leat_bind(handle, generic(any), sizeof(any)), 0) << leat_last_error();
  EXPECT_EQ(leat_listen(handle, 16), 0) << leat_last_error();
  return handle;
}

int connect_to(unsigned port, const std::string& host = {}) {
  const int handle = leat_socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_GE(handle, 0) << leat_last_error();
  const sockaddr_in address = address_of(host, port);
  EXPECT_EQ(leat_connect(handle, generic(address), sizeof(address)), 0) << leat_last_error();
  return handle;
}

std::string recv_text(int handle, std::size_t bytes, int flags = 0) {
  std::string text(bytes, '\0');
  const ssize_t got = leat_recv(handle, text.data(), text.size(), flags);
  EXPECT_GE(got, 0) << leat_last_error();
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

void set_timeout(int handle, int option, long microseconds) {
  const timeval time{microseconds / 1'000'000, microseconds % 1'000'000};
  EXPECT_EQ(leat_setsockopt(handle, SOL_SOCKET, option, &time, sizeof(time)), 0);
}

// Parameters: the device, threads or processes.
class CApi : public testing::TestWithParam<std::tuple<std::string, PeerMode>> {
 protected:
  std::string host() const { return device_address(std::get<0>(GetParam())); }
  using Body = std::function<void(Peer&, int handle)>;

  // The first side listens, the second connects. Handles are closed when both have returned.
  void run(const Body& first, const Body& second) const {
    const auto run_body = [](Peer& peer, int handle, const Body& body) {
      ASSERT_GE(handle, 0) << leat_last_error();
      set_timeout(handle, SO_RCVTIMEO, 60'000'000);
      set_timeout(handle, SO_SNDTIMEO, 60'000'000);
      body(peer, handle);
      peer.barrier();
      EXPECT_EQ(leat_close(handle), 0) << leat_last_error();
    };
    const ScratchVariable device("LEAT_DEVICE", std::get<0>(GetParam()));
    // The guest with kernel RDMA is slow.
    const ScratchVariable handshake("LEAT_HANDSHAKE_TIMEOUT_MS", "60000");
    const ScratchVariable connecting("LEAT_CONNECT_TIMEOUT_MS", "60000");
    run_pair(
        std::get<1>(GetParam()),
        [&](Peer& peer) {
          const int listening = listen_somewhere(host());
          peer.tell_value(port_of(listening));
          const int handle = leat_accept(listening, nullptr, nullptr);
          run_body(peer, handle, first);
          EXPECT_EQ(leat_close(listening), 0);
        },
        [&](Peer& peer) {
          run_body(peer, connect_to(peer.hear_value<unsigned>(), host()), second);
        });
  }
};

TEST_P(CApi, BytesGoBothWays) {
  run(
      [](Peer&, int handle) {
        EXPECT_EQ(recv_text(handle, 100), "question");
        send_text(handle, "answer");
      },
      [](Peer&, int handle) {
        send_text(handle, "question");
        EXPECT_EQ(recv_text(handle, 100), "answer");
      });
}

TEST_P(CApi, BlockingSendSendsEverything) {
  static constexpr std::size_t kBytes = std::size_t{32} << 20;
  run(
      [](Peer&, int handle) {
        std::vector<std::byte> bytes(kBytes);
        fill_pattern(bytes, 1);
        EXPECT_EQ(leat_send(handle, bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
      },
      [](Peer&, int handle) {
        std::vector<std::byte> bytes(kBytes);
        EXPECT_EQ(leat_recv(handle, bytes.data(), bytes.size(), MSG_WAITALL), std::ssize(bytes));
        expect_pattern(bytes, 1);
      });
}

TEST_P(CApi, ShutdownIsTheEndForThePeer) {
  run(
      [](Peer&, int handle) {
        send_text(handle, "last");
        EXPECT_EQ(leat_shutdown(handle, SHUT_WR), 0) << leat_last_error();
        expect_errno(EPIPE, [&] { return leat_send(handle, "x", 1, MSG_NOSIGNAL); });
        EXPECT_EQ(recv_text(handle, 10), "still open");
      },
      [](Peer&, int handle) {
        EXPECT_EQ(recv_text(handle, 10), "last");
        EXPECT_EQ(recv_text(handle, 10), "");
        EXPECT_EQ(recv_text(handle, 10), "");
        send_text(handle, "still open");
      });
}

TEST_P(CApi, WaitAllStopsAtTheEnd) {
  run(
      [](Peer&, int handle) {
        send_text(handle, "seven b");
        EXPECT_EQ(leat_shutdown(handle, SHUT_WR), 0);
      },
      [](Peer&, int handle) { EXPECT_EQ(recv_text(handle, 100, MSG_WAITALL), "seven b"); });
}

TEST_P(CApi, PeekLeavesTheBytes) {
  run([](Peer&, int handle) { send_text(handle, "abc"); },
      [](Peer&, int handle) {
        EXPECT_EQ(recv_text(handle, 2, MSG_PEEK), "ab");
        EXPECT_EQ(recv_text(handle, 2, MSG_PEEK | MSG_DONTWAIT), "ab");
        EXPECT_EQ(recv_text(handle, 3), "abc");
      });
}

TEST_P(CApi, NonblockingCallsSayTryAgain) {
  run(
      [](Peer& peer, int handle) {
        char byte = 0;
        expect_errno(EAGAIN, [&] { return leat_recv(handle, &byte, 1, MSG_DONTWAIT); });
        EXPECT_EQ(leat_set_nonblocking(handle, 1), 0);
        expect_errno(EAGAIN, [&] { return leat_recv(handle, &byte, 1, 0); });
        // Fill until there is no room.
        const std::string block(10'000, 'x');
        std::size_t sent = 0;
        for (int refusals = 0; refusals < 100;) {
          const ssize_t taken = leat_send(handle, block.data(), block.size(), 0);
          ASSERT_TRUE(taken > 0 || errno == EAGAIN) << leat_last_error();
          refusals = taken > 0 ? 0 : refusals + 1;
          sent += static_cast<std::size_t>(std::max<ssize_t>(taken, 0));
          ASSERT_LT(sent, std::size_t{1} << 30);
        }
        EXPECT_EQ(leat_set_nonblocking(handle, 0), 0);
        peer.tell_value(sent);
        EXPECT_EQ(recv_text(handle, 10), "all read");
      },
      [](Peer& peer, int handle) {
        const auto sent = peer.hear_value<std::size_t>();
        std::string bytes(sent, '\0');
        EXPECT_EQ(leat_recv(handle, bytes.data(), sent, MSG_WAITALL), std::ssize(bytes));
        send_text(handle, "all read");
      });
}

TEST_P(CApi, TimeoutsSayTryAgain) {
  run(
      [](Peer& peer, int handle) {
        set_timeout(handle, SO_RCVTIMEO, 50'000);
        timeval time{};
        socklen_t bytes = sizeof(time);
        EXPECT_EQ(leat_getsockopt(handle, SOL_SOCKET, SO_RCVTIMEO, &time, &bytes), 0);
        EXPECT_EQ(time.tv_sec, 0);
        EXPECT_GE(time.tv_usec, 50'000);  // the kernel rounds up
        EXPECT_LE(time.tv_usec, 60'000);
        char byte = 0;
        expect_errno(EAGAIN, [&] { return leat_recv(handle, &byte, 1, 0); });
        set_timeout(handle, SO_RCVTIMEO, 60'000'000);
        peer.tell("timed out");
        EXPECT_EQ(recv_text(handle, 10), "late");
      },
      [](Peer& peer, int handle) {
        peer.hear("timed out");
        send_text(handle, "late");
      });
}

// As for TCP: what was taken before the timeout is the result, so that the caller knows where it
// is.
TEST_P(CApi, SendThatTimesOutSaysHowMuchWasSent) {
  static constexpr std::size_t kBytes = std::size_t{128} << 20;
  run(
      [](Peer& peer, int handle) {
        set_timeout(handle, SO_SNDTIMEO, 50'000);
        std::vector<std::byte> stream(kBytes);
        fill_pattern(stream, 2);
        const ssize_t sent = leat_send(handle, stream.data(), stream.size(), 0);
        ASSERT_GT(sent, 0) << leat_last_error();
        ASSERT_LT(sent, std::ssize(stream));
        peer.tell_value(sent);
        expect_errno(EAGAIN, [&] { return leat_send(handle, stream.data(), stream.size(), 0); });
        peer.barrier();  // not before: reading would make room
        EXPECT_EQ(leat_shutdown(handle, SHUT_WR), 0) << leat_last_error();
      },
      [](Peer& peer, int handle) {
        const auto sent = static_cast<std::size_t>(peer.hear_value<ssize_t>());
        std::vector<std::byte> received(sent);
        peer.barrier();
        EXPECT_EQ(leat_recv(handle, received.data(), sent, MSG_WAITALL),
                  static_cast<ssize_t>(sent));
        expect_pattern(received, 2);
      });
}

TEST_P(CApi, NamesOfBothSidesMatch) {
  run(
      [this](Peer& peer, int handle) {
        sockaddr_in other{};
        socklen_t bytes = sizeof(other);
        EXPECT_EQ(leat_getpeername(handle, reinterpret_cast<sockaddr*>(&other), &bytes), 0);
        EXPECT_EQ(ntohs(other.sin_port), peer.hear_value<unsigned>());
        const in_addr_t expected = address_of(host(), 0).sin_addr.s_addr;
        EXPECT_EQ(other.sin_addr.s_addr, expected);
      },
      [](Peer& peer, int handle) { peer.tell_value(port_of(handle)); });
}

TEST_P(CApi, PollDescriptorTellsWhenToReceive) {
  run(
      [](Peer&, int handle) {
        for (int i = 0; i < 100; ++i) {
          send_text(handle, "ping");
          ASSERT_EQ(recv_text(handle, 4), "pong") << "after " << i;
        }
      },
      [](Peer&, int handle) {
        const int fd = leat_poll_fd(handle);
        ASSERT_GE(fd, 0) << leat_last_error();
        for (int count = 0; count < 100;) {
          pollfd wait{fd, POLLIN, 0};
          char bytes[4];
          ASSERT_EQ(::poll(&wait, 1, poll_timeout_ms(hang_deadline())), 1)
              << "after " << count
              << "; there is one: " << leat_recv(handle, bytes, sizeof(bytes), MSG_DONTWAIT);
          while (leat_recv(handle, bytes, sizeof(bytes), MSG_DONTWAIT) == 4) {
            send_text(handle, "pong");
            ++count;
          }
          EXPECT_EQ(errno, EAGAIN);
        }
      });
}

TEST_P(CApi, DescriptionSaysWhatCarriesIt) {
  const auto body = [](Peer&, int handle) {
    char text[500];
    const int bytes = leat_description(handle, text, sizeof(text));
    ASSERT_GT(bytes, 0) << leat_last_error();
    EXPECT_EQ(static_cast<std::size_t>(bytes), std::strlen(text));
    EXPECT_NE(std::string(text).find("ring"), std::string::npos) << text;
    char short_text[5];
    EXPECT_EQ(leat_description(handle, short_text, sizeof(short_text)), bytes);
    EXPECT_EQ(std::string(short_text), std::string(text).substr(0, 4));
    EXPECT_EQ(leat_description(handle, nullptr, 0), bytes);
  };
  run(body, body);
}

TEST_P(CApi, OptionsThatAreAlwaysOnAreGranted) {
  const auto body = [](Peer&, int handle) {
    const int on = 1;
    EXPECT_EQ(leat_setsockopt(handle, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
    EXPECT_EQ(leat_setsockopt(handle, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)), 0);
    EXPECT_EQ(leat_setsockopt(handle, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    expect_errno(ENOPROTOOPT,
                 [&] { return leat_setsockopt(handle, SOL_SOCKET, 9999, &on, sizeof(on)); });
    int value = -1;
    socklen_t bytes = sizeof(value);
    EXPECT_EQ(leat_getsockopt(handle, SOL_SOCKET, SO_ERROR, &value, &bytes), 0);
    EXPECT_EQ(value, 0);
    EXPECT_EQ(leat_getsockopt(handle, SOL_SOCKET, SO_TYPE, &value, &bytes), 0);
    EXPECT_EQ(value, SOCK_STREAM);
    expect_errno(ENOPROTOOPT,
                 [&] { return leat_getsockopt(handle, SOL_SOCKET, 9999, &value, &bytes); });
  };
  run(body, body);
}

LEAT_INSTANTIATE_ON_DEVICES(CApi);

// --- Without a peer

TEST(CApiErrors, UnknownHandleIsEBADF) {
  char byte = 0;
  for (const int handle : {-1, 987'654}) {
    expect_errno(EBADF, [&] { return leat_send(handle, &byte, 1, 0); });
    expect_errno(EBADF, [&] { return leat_recv(handle, &byte, 1, 0); });
    expect_errno(EBADF, [&] { return leat_accept(handle, nullptr, nullptr); });
    expect_errno(EBADF, [&] { return leat_listen(handle, 1); });
    expect_errno(EBADF, [&] { return leat_shutdown(handle, SHUT_RDWR); });
    expect_errno(EBADF, [&] { return leat_poll_fd(handle); });
    expect_errno(EBADF, [&] { return leat_close(handle); });
  }
}

// A descriptor that is not a handle belongs to the system.
TEST(CApiErrors, OtherDescriptorsAreTheKernels) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(leat_write(ends[1], "abc", 3), 3);
  int bytes = 0;
  EXPECT_EQ(leat_ioctl(ends[0], FIONREAD, &bytes), 0);
  EXPECT_EQ(bytes, 3);
  char text[4] = {};
  EXPECT_EQ(leat_read(ends[0], text, 3), 3);
  EXPECT_STREQ(text, "abc");
  EXPECT_EQ(leat_fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
  expect_errno(EAGAIN, [&] { return leat_read(ends[0], text, 3); });
  expect_errno(ENOTSOCK, [&] { return leat_recv(ends[0], text, 3, 0); });
  EXPECT_EQ(leat_close(ends[0]), 0);
  EXPECT_EQ(leat_close(ends[1]), 0);
  EXPECT_EQ(::fcntl(ends[0], F_GETFD), -1);
}

TEST(CApiErrors, ClosedHandleIsEBADF) {
  const int handle = leat_socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(leat_close(handle), 0);
  expect_errno(EBADF, [&] { return leat_close(handle); });
}

TEST(CApiErrors, UnconnectedHandleIsENOTCONN) {
  const int handle = leat_socket(AF_INET, SOCK_STREAM, 0);
  char byte = 0;
  expect_errno(EPIPE, [&] { return leat_send(handle, &byte, 1, MSG_NOSIGNAL); });  // as Linux
  expect_errno(ENOTCONN, [&] { return leat_recv(handle, &byte, 1, 0); });
  expect_errno(ENOTCONN, [&] { return leat_shutdown(handle, SHUT_WR); });
  expect_errno(ENOTCONN, [&] { return leat_getpeername(handle, nullptr, nullptr); });
  expect_errno(EINVAL, [&] { return leat_accept(handle, nullptr, nullptr); });
  EXPECT_EQ(leat_close(handle), 0);
}

TEST(CApiErrors, UnsupportedKindsOfSocketsAreErrors) {
  expect_errno(EPROTONOSUPPORT, [] { return leat_socket(AF_INET, SOCK_DGRAM, 0); });
  expect_errno(EAFNOSUPPORT, [] { return leat_socket(AF_UNIX, SOCK_STREAM, 0); });
}

TEST(CApiErrors, UnsupportedFlagsAreEOPNOTSUPP) {
  const int handle = leat_socket(AF_INET, SOCK_STREAM, 0);
  char byte = 0;
  expect_errno(EOPNOTSUPP, [&] { return leat_send(handle, &byte, 1, MSG_OOB); });
  expect_errno(EOPNOTSUPP, [&] { return leat_recv(handle, &byte, 1, MSG_OOB); });
  EXPECT_EQ(leat_close(handle), 0);
}

TEST(CApiErrors, RefusedConnectionIsECONNREFUSED) {
  const int gone = listen_somewhere();
  const unsigned port = port_of(gone);
  EXPECT_EQ(leat_close(gone), 0);
  const int handle = leat_socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = loopback(port);
  expect_errno(ECONNREFUSED,
               [&] { return leat_connect(handle, generic(address), sizeof(address)); });
  EXPECT_EQ(leat_close(handle), 0);
  expect_errno(ECONNREFUSED,
               [&] { return leat_connect_uri(("127.0.0.1:" + std::to_string(port)).c_str()); });
}

TEST(CApiErrors, PortInUseIsEADDRINUSE) {
  const int listening = listen_somewhere();
  const std::string uri = "127.0.0.1:" + std::to_string(port_of(listening));
  expect_errno(EADDRINUSE, [&] { return leat_listen_uri(uri.c_str()); });
  EXPECT_EQ(leat_close(listening), 0);
}

TEST(CApiErrors, MalformedUrisAreEINVAL) {
  expect_errno(EINVAL, [] { return leat_connect_uri("leat://"); });
  expect_errno(EINVAL, [] { return leat_listen_uri("leat://127.0.0.1:0?nonsense=1"); });
  expect_errno(EFAULT, [] { return leat_connect_uri(nullptr); });
}

TEST(CApiErrors, NonblockingAcceptSaysTryAgain) {
  const int listening = listen_somewhere();
  EXPECT_EQ(leat_set_nonblocking(listening, 1), 0);
  expect_errno(EAGAIN, [&] { return leat_accept(listening, nullptr, nullptr); });
  EXPECT_EQ(leat_close(listening), 0);
}

TEST(CApiAlone, UrisConnectAndListen) {
  const int listening = leat_listen_uri("leat://127.0.0.1:0?transport=tcp&device=tcp");
  ASSERT_GE(listening, 0) << leat_last_error();
  const std::string uri = "leat://127.0.0.1:" + std::to_string(port_of(listening));
  std::thread client([&] {
    const int handle = leat_connect_uri(uri.c_str());
    ASSERT_GE(handle, 0) << leat_last_error();
    send_text(handle, "by uri");
    EXPECT_EQ(recv_text(handle, 10), "");
    EXPECT_EQ(leat_close(handle), 0);
  });
  const int handle = leat_accept(listening, nullptr, nullptr);
  ASSERT_GE(handle, 0) << leat_last_error();
  EXPECT_EQ(recv_text(handle, 10), "by uri");
  EXPECT_EQ(leat_close(handle), 0);
  EXPECT_EQ(leat_close(listening), 0);
  client.join();
}

TEST(CApiAlone, HandlesLeaveNothingBehind) {
  const auto round = [] {
    const int listening = listen_somewhere();
    std::thread client([port = port_of(listening)] {
      const int handle = connect_to(port);
      EXPECT_EQ(recv_text(handle, 10), "");
      EXPECT_EQ(leat_close(handle), 0);
    });
    const int handle = leat_accept(listening, nullptr, nullptr);
    EXPECT_EQ(leat_close(handle), 0);
    client.join();
    EXPECT_EQ(leat_close(listening), 0);
  };
  round();
  const Holdings before = count_holdings();
  for (int i = 0; i < 20; ++i) round();
  expect_no_more_than(before, std::size_t{16} << 20);
}

TEST(CApiAlone, VersionIsNumbersAndDots) {
  EXPECT_EQ(std::string(leat_version()).find_first_not_of("0123456789."), std::string::npos);
}

}  // namespace
}  // namespace leat::detail
