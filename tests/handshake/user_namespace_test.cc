// Users whom a user namespace does not map look all the same, and share no memory.
#include "base/user_namespace.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "base/fd.h"
#include "base/system_error.h"
#include "leat/channel.h"
#include "leat/listener.h"
#include "support/scale.h"
#include "verbs/host_identity.h"

namespace leat::detail {
namespace {

constexpr int kNotAllowed = 77;
constexpr uid_t kOther = 1000;

// A process of `user` in a user namespace of its own that maps nobody.
pid_t as_nobody(uid_t user, const std::function<int()>& body) {
  const pid_t child = check(fork(), "fork");
  if (child != 0) return child;
  int status = 1;
  try {
    const bool ready = setresuid(user, user, user) == 0 && unshare(CLONE_NEWUSER) == 0;
    status = ready ? body() : kNotAllowed;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::_Exit(status);
}

int status_of(pid_t child) {
  int status = -1;
  check(waitpid(child, &status, 0), "waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(UserNamespaceTest, UserThatIsNotMappedIsUnknown) {
  EXPECT_TRUE(is_one_user(geteuid()));
  EXPECT_EQ(host_identity().user, geteuid());
  const int status = status_of(as_nobody(geteuid(), [] {
    const bool known = is_one_user(geteuid());
    return !known && host_identity().user == HostIdentity::kUnknownUser && is_one_user(0) ? 0 : 1;
  }));
  if (status == kNotAllowed) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(status, 0);
}

// What of a connection between the two came to stand: "shm", "tcp".
TEST(UserNamespaceTest, TwoUsersWhoAreNotMappedShareNoMemory) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  std::array<int, 2> ends{};
  check(pipe2(ends.data(), O_CLOEXEC), "pipe2");
  const Fd hears(ends[0]);
  const Fd tells(ends[1]);
  Options options;
  options.connect_timeout = options.handshake_timeout = options.timeout = hang_limit();
  const pid_t listening = as_nobody(0, [&] {
    Listener listener("127.0.0.1:0", options);
    const unsigned port = listener.port();
    check(static_cast<int>(write(tells.get(), &port, sizeof port)), "write");
    Channel channel = listener.accept();
    const bool shared = channel.device() == "shm";
    channel.send("over");
    return !channel.receive() && !shared ? 0 : 1;
  });
  const pid_t connecting = as_nobody(kOther, [&] {
    unsigned port = 0;
    check(static_cast<int>(read(hears.get(), &port, sizeof port)), "read");
    Channel channel = Channel::connect("127.0.0.1:" + std::to_string(port), options);
    const bool shared = channel.device() == "shm";
    return channel.receive().text() == "over" && !shared ? 0 : 1;
  });
  const int first = status_of(listening);
  const int second = status_of(connecting);
  if (first == kNotAllowed || second == kNotAllowed) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 0);
}

}  // namespace
}  // namespace leat::detail
