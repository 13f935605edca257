// What a side says in its log of messages that go to another host in clear: once in a process.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/system_error.h"
#include "handshake/connection.h"
#include "net/stream.h"
#include "net/tcp.h"
#include "support/leaving_host.h"
#include "support/link_pair.h"
#include "support/program.h"
#include "support/scale.h"
#include "support/scratch.h"

namespace leat::detail {
namespace {

constexpr int kNoNamespaces = 77;
constexpr const char* kOtherAddress = "10.9.8.7";

// A network of this process alone, with another address than those of the loopback, which are known
// to be of this host.
bool enter_own_network() {
  if (unshare(geteuid() == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING;
  if (ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0) return false;
  request = {};
  std::strcpy(request.ifr_name, "lo:1");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, kOtherAddress, &address.sin_addr);
  std::memcpy(&request.ifr_addr, &address, sizeof address);
  return ioctl(socket.get(), SIOCSIFADDR, &request) == 0;
}

// From the loopback to the other address: the side that connects takes that for another host.
std::string connect_beyond(const Settings& settings) {
  Uri uri;
  uri.host = kOtherAddress;
  const Fd listening = listen_tcp(uri);
  uri.port = bound_port(listening.get());
  std::thread accepting([&] {
    wait_ready(listening.get(), POLLIN, hang_deadline(), "nobody came");
    Fd newcomer(check(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept4"));
    const Connection connection =
        accept_connection(hear(std::move(newcomer), settings), settings, {[] {}, [](LastWord) {}});
  });
  Fd socket(check(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
  sockaddr_in from{};
  from.sin_family = AF_INET;
  from.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  check(bind(socket.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from), "bind");
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(uri.port);
  inet_pton(AF_INET, kOtherAddress, &to.sin_addr);
  check(connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), "connect");
  const Connection connection = open_connection(std::move(socket), settings);
  accepting.join();
  return connection.description;
}

// What this process says to three connections with these settings, made in a child that has a
// network of its own; nothing where it may have none. EXPECTs that their descriptions say
// ", in clear" if `says_in_clear`, and else do not.
std::optional<std::string> said_of_three(const Settings& settings, bool says_in_clear) {
  testing::internal::CaptureStderr();
  const pid_t child = check(fork(), "fork");
  if (child == 0) {
    int status = 1;
    try {
      status = kNoNamespaces;
      if (enter_own_network()) {
        status = 0;
        for (int i = 0; i < 3; ++i) {
          const bool says = connect_beyond(settings).find(", in clear") != std::string::npos;
          if (says != says_in_clear) status = 2;
        }
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      status = 1;
    }
    std::_Exit(status);
  }
  int status = 0;
  check(waitpid(child, &status, 0), "waitpid");
  std::string said = testing::internal::GetCapturedStderr();
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoNamespaces) return std::nullopt;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << said;
  return said;
}

constexpr const char* kSkipped = "neither root nor user namespaces, so no network of its own";

TEST(ClearWarning, ComesOnceForConnectionsToOtherHostsAndNamesTheRemedy) {
  for (const Confidential wish : {Confidential::kOff, Confidential::kPrefer}) {
    Settings settings = link_settings("tcp");
    settings.confidential = wish;
    const auto said = said_of_three(settings, wish == Confidential::kPrefer);
    if (!said) GTEST_SKIP() << kSkipped;
    EXPECT_EQ(count_of("run without TLS", *said), 1U) << *said;
    EXPECT_EQ(count_of("tls_psk_file", *said), 1U) << *said;
  }
}

// TLS hides how such connections are made, and nothing of their messages.
TEST(ClearWarning, ComesOnceForMessagesOverRdmaToOtherHostsAndNamesTheRemedy) {
  constexpr const char* kWarning = "messages over RDMA to other hosts go in clear";
  const LeavingHost leaving;
  const ScratchFolder folder;
  Settings settings = link_settings("shm");
  settings.tls_psk_file = folder.write("key", std::string(64, 'a'));
  for (const char* transport : {"auto", "chunked"}) {
    settings.transport = transport;
    const auto said = said_of_three(settings, false);
    if (!said) GTEST_SKIP() << kSkipped;
    EXPECT_EQ(count_of(kWarning, *said), 1U) << *said;
    EXPECT_EQ(count_of("confidential=prefer", *said), 1U) << *said;
    EXPECT_EQ(count_of("run without TLS", *said), 0U) << *said;
  }
}

TEST(ClearWarning, IsNotGivenWhereMessagesAreSealedOrStayInThisHost) {
  const ScratchFolder folder;
  Settings settings = link_settings("shm");
  settings.tls_psk_file = folder.write("key", std::string(64, 'a'));
  for (const bool leaves : {true, false}) {
    const LeavingHost leaving(leaves);
    settings.confidential = leaves ? Confidential::kPrefer : Confidential::kOff;
    const auto said = said_of_three(settings, false);
    if (!said) GTEST_SKIP() << kSkipped;
    EXPECT_EQ(count_of("in clear", *said), 0U) << *said;
    EXPECT_EQ(count_of("run without TLS", *said), 0U) << *said;
  }
}

}  // namespace
}  // namespace leat::detail
