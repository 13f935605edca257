#include "conn/device_list.h"

#include <gtest/gtest.h>

#include "leat/error.h"

namespace leat::detail {
namespace {

TEST(DeviceListTest, AutoAllowsEverything) {
  const DeviceList list("auto");
  for (const DeviceKind kind : {DeviceKind::kShm, DeviceKind::kIb, DeviceKind::kTcp}) {
    EXPECT_TRUE(list.allows(kind)) << to_string(kind);
  }
  EXPECT_TRUE(list.allows("ib:mlx5_0"));
  EXPECT_EQ(list.text(), "auto");
}

TEST(DeviceListTest, ListAllowsWhatItNamesAndNothingElse) {
  const DeviceList shm("shm");
  EXPECT_TRUE(shm.allows(DeviceKind::kShm));
  EXPECT_FALSE(shm.allows(DeviceKind::kIb));
  EXPECT_FALSE(shm.allows(DeviceKind::kTcp));
  const DeviceList two("ib,tcp");
  EXPECT_FALSE(two.allows(DeviceKind::kShm));
  EXPECT_TRUE(two.allows("ib:anything"));
  EXPECT_TRUE(two.allows("tcp"));
  EXPECT_FALSE(two.allows("shm"));
}

TEST(DeviceListTest, VerbsDevicesMatchByPrefixWithOrWithoutIb) {
  for (const char* text : {"ib:mlx5_1", "mlx5_1"}) {
    const DeviceList list(text);
    EXPECT_TRUE(list.allows(DeviceKind::kIb));
    EXPECT_FALSE(list.allows(DeviceKind::kShm));
    EXPECT_TRUE(list.allows("ib:mlx5_1"));
    EXPECT_TRUE(list.allows("ib:mlx5_10")) << "a prefix";
    EXPECT_FALSE(list.allows("ib:mlx5_0"));
    EXPECT_FALSE(list.allows("tcp"));
  }
}

TEST(DeviceListTest, EqualsComparesWholeNames) {
  const DeviceList list("=ib:mlx5_1,shm");
  EXPECT_TRUE(list.allows("ib:mlx5_1"));
  EXPECT_FALSE(list.allows("ib:mlx5_10"));
  EXPECT_TRUE(list.allows("shm"));
}

TEST(DeviceListTest, PortsNarrowIfTheyAreKnown) {
  const DeviceList list("ib:mlx5_0:1,rxe0:2");
  EXPECT_TRUE(list.allows("ib:mlx5_0:1"));
  EXPECT_FALSE(list.allows("ib:mlx5_0:2"));
  EXPECT_TRUE(list.allows("ib:rxe0:2"));
  EXPECT_FALSE(list.allows("ib:rxe0:1"));
  EXPECT_TRUE(list.allows("ib:mlx5_0")) << "its port is not told";
}

TEST(DeviceListTest, CaretExcludes) {
  const DeviceList no_shm("^shm");
  EXPECT_FALSE(no_shm.allows(DeviceKind::kShm));
  EXPECT_TRUE(no_shm.allows(DeviceKind::kIb));
  EXPECT_TRUE(no_shm.allows(DeviceKind::kTcp));
  const DeviceList one_less("^=mlx5_1,tcp");
  EXPECT_TRUE(one_less.allows(DeviceKind::kIb)) << "others are left";
  EXPECT_FALSE(one_less.allows("ib:mlx5_1"));
  EXPECT_TRUE(one_less.allows("ib:mlx5_10"));
  EXPECT_FALSE(one_less.allows(DeviceKind::kTcp));
  EXPECT_FALSE(DeviceList("^ib").allows("ib:rxe0"));
  EXPECT_FALSE(DeviceList("^ib").allows(DeviceKind::kIb));
}

TEST(DeviceListTest, JunkIsRefusedWithTheReason) {
  const struct {
    const char* text;
    const char* reason;
  } cases[] = {
      {"", "empty entry"},         {"shm,", "empty entry"},       {",shm", "empty entry"},
      {"^", "empty entry"},        {"=^shm", "no device name"},   {"shm,auto", "stand alone"},
      {"ib:", "no device name"},   {"ib:mlx5_0:", "no number"},   {"mlx5_0:one", "no number"},
      {"mlx5_0:1:2", "no number"}, {"shm tcp", "no device name"}, {"ib:m/../x", "no device name"},
      {"mlx5_0:-1", "no number"},
  };
  for (const auto& item : cases) {
    try {
      const DeviceList list(item.text);
      ADD_FAILURE() << item.text << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find(item.reason), std::string::npos)
          << item.text << ": " << error.what();
    }
  }
  EXPECT_THROW(DeviceList(std::string(200, ',')), Error);
  std::string many = "shm";
  for (int i = 0; i < 100; ++i) many += ",tcp";
  EXPECT_THROW(DeviceList{many}, Error);
}

}  // namespace
}  // namespace leat::detail
