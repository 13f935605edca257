#include "handshake/device_list.h"

#include <gtest/gtest.h>

#include "leat/error.h"

namespace leat::detail {
namespace {

const DeviceRow& row(const char* kind) { return *find_device_row(kind); }

TEST(DeviceListTest, AutoAllowsEverything) {
  const DeviceList list("auto");
  for (const DeviceRow& kind : device_rows()) EXPECT_TRUE(list.allows(kind)) << kind.kind;
  EXPECT_TRUE(list.allows("ib:mlx5_0"));
  EXPECT_EQ(list.text(), "auto");
}

TEST(DeviceListTest, ListAllowsWhatItNamesAndNothingElse) {
  const DeviceList shm("shm");
  EXPECT_TRUE(shm.allows(row("shm")));
  EXPECT_FALSE(shm.allows(row("ib")));
  EXPECT_FALSE(shm.allows(row("tcp")));
  const DeviceList two("ib,tcp");
  EXPECT_FALSE(two.allows(row("shm")));
  EXPECT_TRUE(two.allows("ib:anything"));
  EXPECT_TRUE(two.allows("tcp"));
  EXPECT_FALSE(two.allows("shm"));
}

TEST(DeviceListTest, SharesMemoryIfEveryDeviceThatItAllowsDoes) {
  for (const char* text : {"shm", "=shm", "^ib,tcp"})
    EXPECT_TRUE(DeviceList(text).shares_memory()) << text;
  for (const char* text :
       {"auto", "shm,ib", "shm,mlx5_0", "ib", "tcp", "^ib", "^shm", "^mlx5_0,tcp"})
    EXPECT_FALSE(DeviceList(text).shares_memory()) << text;
}

TEST(DeviceListTest, VerbsDevicesMatchByPrefixWithOrWithoutIb) {
  for (const char* text : {"ib:mlx5_1", "mlx5_1"}) {
    const DeviceList list(text);
    EXPECT_TRUE(list.allows(row("ib")));
    EXPECT_FALSE(list.allows(row("shm")));
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
  EXPECT_FALSE(no_shm.allows(row("shm")));
  EXPECT_TRUE(no_shm.allows(row("ib")));
  EXPECT_TRUE(no_shm.allows(row("tcp")));
  const DeviceList one_less("^=mlx5_1,tcp");
  EXPECT_TRUE(one_less.allows(row("ib"))) << "others are left";
  EXPECT_FALSE(one_less.allows("ib:mlx5_1"));
  EXPECT_TRUE(one_less.allows("ib:mlx5_10"));
  EXPECT_FALSE(one_less.allows(row("tcp")));
  EXPECT_FALSE(DeviceList("^ib").allows("ib:rxe0"));
  EXPECT_FALSE(DeviceList("^ib").allows(row("ib")));
}

TEST(DeviceListTest, KnowsWhichOfItsNamesNoDeviceHas) {
  const std::vector<std::string> present{"ib:mlx5_0", "ib:mlx5_1"};
  EXPECT_FALSE(DeviceList("shm,ib").names_devices());
  EXPECT_TRUE(DeviceList("shm,mlx5_0").names_devices());
  EXPECT_EQ(DeviceList("auto").missing(present), "");
  EXPECT_EQ(DeviceList("mlx5").missing(present), "");
  EXPECT_EQ(DeviceList("=mlx5").missing(present), "mlx5");
  EXPECT_EQ(DeviceList("mlx5_O,ib:mlx5_1:2,rxe0").missing(present), "mlx5_O, rxe0");
  EXPECT_FALSE(DeviceList("shn").leaves_any(present));
  EXPECT_FALSE(DeviceList("mlx5_O,rxe0").leaves_any(present));
  EXPECT_TRUE(DeviceList("mlx5_O,mlx5_1").leaves_any(present));
  EXPECT_TRUE(DeviceList("mlx5_O,tcp").leaves_any(present));
  EXPECT_TRUE(DeviceList("^mlx5_O").leaves_any(present));
  EXPECT_TRUE(DeviceList("mlx5_0:1").names_ports());
  EXPECT_FALSE(DeviceList("mlx5_0").names_ports());
}

TEST(DeviceListTest, JunkIsRefusedWithTheReason) {
  const struct {
    const char* text;
    const char* reason;
  } cases[] = {
      {"", "empty entry"},
      {"shm,", "empty entry"},
      {",shm", "empty entry"},
      {"^", "empty entry"},
      {"=^shm", "not a device name"},
      {"shm,auto", "stand alone"},
      {"ib:", "not a device name"},
      {"ib:mlx5_0:", "not a number"},
      {"mlx5_0:one", "not a number"},
      {"mlx5_0:1:2", "not a number"},
      {"shm tcp", "not a device name"},
      {"ib:m/../x", "not a device name"},
      {"mlx5_0:-1", "not a number"},
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
