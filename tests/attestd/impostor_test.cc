// Who serves at leat-attestd's socket: clients trust root, their own user and the one that is
// named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "attest/kernel_connection.h"
#include "attest/kernel_ring.h"
#include "attestd/daemon.h"
#include "attestd/impostor.h"
#include "attestd/session.h"
#include "leat/attest/isolated_kernel.h"
#include "leat/channel.h"
#include "leat/listener.h"
#include "support/errors.h"
#include "support/users.h"

namespace leat::attestd {
namespace {

using leat::detail::error_of;
using leat::detail::kNobody;
using testing::AllOf;
using testing::HasSubstr;
using trusted::detail::may_serve;

// A process of user nobody, where root runs the test, else of this one, that welcomes clients with
// what no daemon says.
struct Stranger : Impostor {
  Stranger()
      : Impostor(
            [](const Fd& client) {
              auto welcome = trusted::detail::encode({});
              welcome[0] = std::byte{'?'};
              static_cast<void>(send(client.get(), welcome.data(), welcome.size(), MSG_NOSIGNAL));
            },
            [] { return geteuid() != 0 || leat::detail::become_nobody(); }) {}
};

// An impostor of this process's own user cannot be told from the daemon.
const ErrorCode kFound = geteuid() == 0 ? ErrorCode::kAuthentication : ErrorCode::kVersion;

TEST(AttestdImpostor, may_be_only_of_root_of_the_clients_user_or_of_the_named_one) {
  constexpr uid_t kAlice = 4242, kBob = 4243;
  EXPECT_TRUE(may_serve(0, kAlice, "leat-attestd"));
  EXPECT_TRUE(may_serve(kAlice, kAlice, "leat-attestd"));
  EXPECT_TRUE(may_serve(kBob, kAlice, "4243"));
  EXPECT_TRUE(may_serve(kNobody, kAlice, "nobody"));
  EXPECT_FALSE(may_serve(kNobody, kAlice, "leat-attestd"));
  EXPECT_FALSE(may_serve(kNobody, 0, "leat-attestd"));
  EXPECT_FALSE(may_serve(kBob, kAlice, "nobody"));
  for (const char* none : {"", "no such user", "root"}) EXPECT_FALSE(may_serve(kBob, kAlice, none));
}

TEST(AttestdImpostor, is_refused_by_a_kernel_and_named) {
  const Stranger impostor;
  const auto text = error_of(kFound, [&] { trusted::IsolatedKernel{impostor.path()}; });
  EXPECT_THAT(text, HasSubstr(impostor.path()));
  if (kFound == ErrorCode::kAuthentication) {
    EXPECT_THAT(text, AllOf(HasSubstr("nobody (65534)"), HasSubstr("root (0)"),
                            HasSubstr("'leat-attestd'"), HasSubstr("attest_kernel_user")));
  }
}

TEST(AttestdImpostor, is_refused_by_a_channel_and_named) {
  const Stranger impostor;
  Daemon daemon;
  Listener listener("127.0.0.1:0", daemon.options());
  Options options = daemon.options();
  options.attest_kernel = impostor.path();
  const auto text = error_of(kFound, [&] { Channel::connect(listener.address(), options); });
  EXPECT_THAT(text, HasSubstr(impostor.path()));
  if (kFound == ErrorCode::kAuthentication) {
    EXPECT_THAT(text, HasSubstr("nobody (65534)"));
  }
}

TEST(AttestdImpostor, of_the_user_that_is_named_is_believed_until_it_speaks) {
  const Stranger impostor;
  Daemon daemon;
  Listener listener("127.0.0.1:0", daemon.options());
  for (const char* user : {"nobody", "65534"}) {
    EXPECT_THAT(
        error_of(ErrorCode::kVersion,
                 [&] {
                   trusted::IsolatedKernel{impostor.path(), std::chrono::microseconds(0), user};
                 }),
        HasSubstr("is not a leat-attestd of this version"));
    Options options = daemon.options();
    options.attest_kernel = impostor.path();
    options.attest_kernel_user = user;
    EXPECT_THAT(
        error_of(ErrorCode::kVersion, [&] { Channel::connect(listener.address(), options); }),
        HasSubstr("is not a leat-attestd of this version"));
  }
}

// Root began to serve, and gave its rights up afterwards.
TEST(AttestdImpostor, is_no_daemon_that_root_started_whoever_it_became) {
  Daemon daemon({}, "nobody");
  EXPECT_EQ(Session(daemon).exchange(), trusted::Verdict::kOk);
}

}  // namespace
}  // namespace leat::attestd
