#include "base/users.h"

#include <gtest/gtest.h>

namespace leat::detail {
namespace {

TEST(Users, AreFoundByNameAndByNumber) {
  EXPECT_EQ(user_of("root"), uid_t{0});
  EXPECT_EQ(user_of("0"), uid_t{0});
  EXPECT_EQ(user_of("4294967294"), uid_t{4294967294});
  for (const char* none : {"", "4294967295", "-1", "no such user"})
    EXPECT_FALSE(user_of(none)) << none;
}

TEST(Users, AreDescribedWithTheirNumber) {
  EXPECT_EQ(describe_user(0), "root (0)");
  EXPECT_EQ(describe_user(4294967294), "user 4294967294");
}

}  // namespace
}  // namespace leat::detail
