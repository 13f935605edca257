// Who may meet whom in a folder, as its file `policy` says.
#include "preload/meeting_policy.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "support/scratch.h"
#include "support/users.h"

namespace leat::preload {
namespace {

using detail::ScratchFolder;

Party party(uid_t user, gid_t group, gid_t another_group = 77) {
  Party result;
  result.user = user;
  result.knows_groups = true;
  result.groups[0] = group;
  result.groups[1] = another_group;
  result.group_count = 2;
  return result;
}

bool may_meet(const std::string& policy, const Party& connector, const Party& listener,
              std::uint16_t port) {
  const ScratchFolder folder;
  folder.write("policy", policy);
  return why_not_meet(folder.path().c_str(), connector, listener, port) == nullptr;
}

TEST(MeetingPolicy, WithoutAFileOnlyOneUserMeets) {
  const ScratchFolder folder;
  const auto why_not = [&](const Party& connector, const Party& listener) {
    return why_not_meet(folder.path().c_str(), connector, listener, 6379);
  };
  EXPECT_EQ(why_not(party(1000, 1), party(1000, 2)), nullptr);
  EXPECT_STREQ(why_not(party(1000, 1), party(1001, 1)), "it belongs to another user");
  EXPECT_STREQ(why_not(party(0, 0), party(1001, 1)), "it belongs to another user");
  EXPECT_NE(why_not(Party{}, Party{}), nullptr) << "no user is not one user";
}

TEST(MeetingPolicy, AllowsWhatALineSaysAndNothingElse) {
  const std::string policy =
      "# redis\n\n  allow user:1000\tuser:999 6379   # its cache\r\nallow group:3000 * 5000-5010\n";
  EXPECT_TRUE(may_meet(policy, party(1000, 1), party(999, 1), 6379));
  EXPECT_FALSE(may_meet(policy, party(999, 1), party(1000, 1), 6379)) << "the other way round";
  EXPECT_FALSE(may_meet(policy, party(1000, 1), party(999, 1), 6380));
  EXPECT_FALSE(may_meet(policy, party(1000, 1), party(1000, 1), 6379)) << "one user, not named";
  EXPECT_FALSE(may_meet(policy, party(0, 0), party(999, 1), 6379)) << "root is a user";
  EXPECT_TRUE(may_meet(policy, party(5, 3000), party(6, 1), 5000));
  EXPECT_TRUE(may_meet(policy, party(5, 1, 3000), party(6, 1), 5010)) << "a further group";
  EXPECT_FALSE(may_meet(policy, party(5, 1), party(6, 3000), 5005));
  EXPECT_FALSE(may_meet(policy, party(5, 3000), party(6, 1), 4999));
  EXPECT_FALSE(may_meet("allow * * *\n", Party{}, party(6, 1), 1)) << "no user";
  EXPECT_TRUE(may_meet("allow * * *", party(5, 1), party(6, 1), 65535)) << "no end of line";
  EXPECT_FALSE(may_meet("", party(5, 1), party(5, 1), 1)) << "an empty file allows nothing";
}

TEST(MeetingPolicy, AUserOfUnknownGroupsMayBeInAnyOfThem) {
  const std::string policy = "allow group:3000 user:999 *\n";
  EXPECT_TRUE(may_meet(policy, party_of_user(1000), party(999, 1), 1));
  EXPECT_FALSE(may_meet(policy, party_of_user(1000), party(998, 1), 1));
}

TEST(MeetingPolicy, OneLineThatCannotBeReadAllowsNothing) {
  for (const char* line :
       {"allow", "allow * *", "allow * * * *", "deny * * *", "Allow * * *", "allow user:x * *",
        "allow user:-1 * *", "allow user: * *", "allow user:4294967295 * *",
        "allow user:4294967296 * *", "allow group:1x * *", "allow root * *", "allow * * 65536",
        "allow * * 5-4", "allow * * 5-", "allow * * -5", "allow * * 5-6-7", "allow * * x"}) {
    EXPECT_FALSE(may_meet(std::string("allow * * *\n") + line, party(5, 1), party(5, 1), 5))
        << line;
  }
  EXPECT_FALSE(
      may_meet(std::string("allow * * *\n\0allow * * *\n", 25), party(5, 1), party(5, 1), 5));
  EXPECT_FALSE(may_meet("allow * * *\n" + std::string(100'000, '\n'), party(5, 1), party(5, 1), 5))
      << "too long";
}

TEST(MeetingPolicy, AFileThatOthersMayWriteOrHavePutThereAllowsNothing) {
  const Party one = party(5, 1);
  const auto allows = [&](const ScratchFolder& folder) {
    errno = 0;
    const bool result = why_not_meet(folder.path().c_str(), one, one, 5) == nullptr;
    EXPECT_EQ(errno, 0);
    return result;
  };
  const ScratchFolder folder;
  const std::string path = folder.write("policy", "allow * * *\n");
  EXPECT_TRUE(allows(folder));
  for (const unsigned mode : {0620U, 0602U, 0666U}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_FALSE(allows(folder)) << mode;
  }
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_TRUE(allows(folder));
  ASSERT_EQ(rename(path.c_str(), (folder.path() + "/other").c_str()), 0);
  ASSERT_EQ(symlink("other", path.c_str()), 0);
  EXPECT_FALSE(allows(folder)) << "a symbolic link";
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(allows(folder)) << "a pipe";
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  EXPECT_FALSE(allows(folder)) << "a folder";
  if (geteuid() != 0) return;
  const ScratchFolder other;
  const std::string foreign = other.write("policy", "allow * * *\n", 0644);
  ASSERT_EQ(chown(foreign.c_str(), 12345, 12345), 0);
  EXPECT_FALSE(allows(other)) << "a stranger's file";
  ASSERT_EQ(chown(other.path().c_str(), 12345, 12345), 0);
  EXPECT_TRUE(allows(other)) << "that of the folder's owner";
}

TEST(MeetingPolicy, TheKernelSaysWhoThePeerIs) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Party peer = party_at(ends[0]);
  const Party own = this_party();
  EXPECT_EQ(peer.user, geteuid());
  EXPECT_EQ(peer.groups[0], getegid());
  EXPECT_EQ(peer.group_count, own.group_count);
  EXPECT_EQ(peer.user, own.user);
  EXPECT_TRUE(peer.knows_groups);
  EXPECT_EQ(party_at(-1).user, static_cast<uid_t>(-1));
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace leat::preload
