// Who is at the other end of a unix socket.
#include "base/unix_socket.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/system_error.h"
#include "support/scratch.h"

namespace leat::detail {
namespace {

TEST(UnixSocketTest, ProcessThatBeganToListenIsKnownToHaveEnded) {
  const ScratchFolder folder;
  const auto address = unix_address(folder.path() + "/socket").value();
  const auto* where = reinterpret_cast<const sockaddr*>(&address);
  const auto make = [] {
    return Fd(check(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), "socket"));
  };
  const Fd listener = make(), client = make();
  check(bind(listener.get(), where, sizeof address), "bind");
  int told[2], over[2];
  check(pipe(told), "pipe");
  check(pipe(over), "pipe");
  Fd hears(told[0]), tells(told[1]), waits(over[0]), ends(over[1]);
  const pid_t child = check(fork(), "fork");
  if (child == 0) {
    ends.reset();
    char byte = 0;
    const bool listens = listen(listener.get(), 8) == 0 && write(tells.get(), "!", 1) == 1;
    _exit(listens && read(waits.get(), &byte, 1) == 0 ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(read(hears.get(), &byte, 1), 1);
  check(connect(client.get(), where, sizeof address), "connect");
  const auto peer = peer_of(client.get());
  EXPECT_EQ(peer ? peer->pid : -1, child);
  EXPECT_TRUE(peer_may_live(client.get()));
  ends.reset();
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD
  int handle = -1;
  socklen_t bytes = sizeof handle;
  const bool unknown = getsockopt(client.get(), SOL_SOCKET, kPeerPidfd, &handle, &bytes) != 0 &&
                       errno == ENOPROTOOPT;
  const Fd closed_at_the_end(handle);
  EXPECT_EQ(peer_may_live(client.get()), unknown);
}

TEST(UnixSocketTest, ProcessesOfOnePidNamespaceAgreeAboutIt) {
  ASSERT_NE(pid_namespace(), 0U);
  const std::string script =
      "test $(stat -L -c %i /proc/self/ns/pid) = " + std::to_string(pid_namespace());
  const pid_t child = check(fork(), "fork");
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
    _exit(1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace leat::detail
