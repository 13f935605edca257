#include "base/key_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "base/users.h"
#include "support/errors.h"
#include "support/peer_pair.h"
#include "support/scratch.h"
#include "support/users.h"

namespace leat::detail {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(KeyFile, IsOfItsReaderOrOfRootWhoseGroupMayReadIt) {
  EXPECT_EQ(most_open_mode(1000, 1000), mode_t{0600});
  EXPECT_EQ(most_open_mode(0, 1000), mode_t{0640});
  EXPECT_EQ(most_open_mode(0, 0), mode_t{0640});
  EXPECT_FALSE(most_open_mode(1001, 1000));
  EXPECT_FALSE(most_open_mode(1000, 0));
}

struct KeyFileOf : testing::Test {
  std::string refused(mode_t mode) const {
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return error_of(ErrorCode::kInvalidArgument, [&] { open_secret("a_key_file", path); });
  }
  void expect_taken(mode_t mode) const {
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_NO_THROW(EXPECT_TRUE(open_secret("a_key_file", path)));
  }

  const ScratchFolder folder;
  const std::string path = folder.write("key", "secret");
};

TEST_F(KeyFileOf, its_reader_is_for_no_one_else) {
  const std::string most = geteuid() == 0 ? "0640" : "0600";
  for (const mode_t mode : {0644U, 0604U, 0620U, 0610U, 0602U, 0601U, 0666U, 0777U})
    EXPECT_THAT(refused(mode),
                AllOf(HasSubstr("a_key_file '" + path + "'"), HasSubstr("must be at most " + most),
                      HasSubstr("chmod " + most + " '" + path + "'")))
        << mode;
  EXPECT_THAT(refused(0644), HasSubstr("its mode is 0644"));
  for (const mode_t mode : {0400U, 0600U, 0700U}) expect_taken(mode);
}

TEST_F(KeyFileOf, another_user_is_refused) {
  if (geteuid() != 0) {  // which gives none away: root's files are all there is
    EXPECT_THAT(
        error_of(ErrorCode::kInvalidArgument, [&] { open_secret("a_key_file", "/etc/passwd"); }),
        HasSubstr("must be at most 0640"));
    return;
  }
  ASSERT_EQ(chown(path.c_str(), kNobody, kNobody), 0);
  EXPECT_THAT(refused(0600), AllOf(HasSubstr("is " + describe_user(kNobody) + "'s"),
                                   HasSubstr("must be root (0)'s"), HasSubstr("chown 0")));
}

// As services read their keys: of their own, or root's by their group.
TEST_F(KeyFileOf, root_may_be_read_by_a_service_through_its_group) {
  if (geteuid() != 0) return expect_taken(0600);
  ASSERT_EQ(chmod(folder.path().c_str(), 0711), 0);
  const std::string own = folder.write("own", "secret");
  ASSERT_EQ(chown(own.c_str(), kNobody, kNobody), 0);
  ASSERT_EQ(chown(path.c_str(), 0, kNobody), 0);
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  run_process("service", [&] {
    ASSERT_TRUE(become_nobody());
    EXPECT_NO_THROW(open_secret("a_key_file", path));
    EXPECT_NO_THROW(open_secret("a_key_file", own));
    ASSERT_EQ(chmod(own.c_str(), 0640), 0);
    EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { open_secret("a_key_file", own); }),
                AllOf(HasSubstr("its mode is 0640"), HasSubstr("at most 0600")));
  });
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  run_process("service", [&] {
    ASSERT_TRUE(become_nobody());
    EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { open_secret("a_key_file", path); }),
                HasSubstr("at most 0640"));
  });
}

TEST_F(KeyFileOf, folders_and_missing_files_are_told_as_what_they_are) {
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                       [&] {
                         read_key_file({"a_key_file", folder.path(), 1, 64});
                       }),
              HasSubstr("directory"));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                       [&] { open_secret("a_key_file", folder.path() + "/none"); }),
              HasSubstr("No such file"));
}

}  // namespace
}  // namespace leat::detail
