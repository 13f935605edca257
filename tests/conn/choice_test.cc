// The rules by which two sides find a device and a transport.
#include "conn/choice.h"

#include <gtest/gtest.h>

#include <cstring>

#include "leat/error.h"

namespace leat::detail {
namespace {

Hello hello_of(std::byte boot, std::uint32_t user = 1000, std::uint64_t network = 5) {
  Hello hello;
  hello.host.boot_id.fill(boot);
  hello.host.user = user;
  hello.host.network = network;
  for (DeviceState& device : hello.devices) device.use = DeviceUse::kAllowed;
  hello.device_setting = "auto";
  return hello;
}

class ChoiceTest : public testing::Test {
 protected:
  Hello client_ = hello_of(std::byte{1});
  Hello listener_ = hello_of(std::byte{1});

  Verdict judge_kind(DeviceKind kind, const std::string& transport = "auto") const {
    return judge(kind, client_, listener_, transport);
  }
};

TEST_F(ChoiceTest, ShmNeedsOneHostUserAndNamespace) {
  EXPECT_TRUE(judge_kind(DeviceKind::kShm).possible);

  listener_ = hello_of(std::byte{2});
  EXPECT_EQ(judge_kind(DeviceKind::kShm).why_not, "other host");
  EXPECT_FALSE(judge_kind(DeviceKind::kShm).is_loss) << "it cannot be";

  listener_ = hello_of(std::byte{1}, 0);
  EXPECT_EQ(judge_kind(DeviceKind::kShm).why_not, "other user (client 1000, listener 0)");
  EXPECT_TRUE(judge_kind(DeviceKind::kShm).is_loss);

  listener_ = hello_of(std::byte{1}, 1000, 6);
  EXPECT_EQ(judge_kind(DeviceKind::kShm).why_not, "other network namespace");
  EXPECT_FALSE(judge_kind(DeviceKind::kShm).possible);
}

TEST_F(ChoiceTest, UnknownIdentitiesNeverMatch) {
  client_ = listener_ = hello_of(std::byte{0});
  EXPECT_FALSE(judge_kind(DeviceKind::kShm).possible);
  client_ = listener_ = hello_of(std::byte{1}, 1000, 0);
  EXPECT_FALSE(judge_kind(DeviceKind::kShm).possible);
}

TEST_F(ChoiceTest, UnusableDevicesTellBothSidesReasons) {
  client_.device(DeviceKind::kIb) = {DeviceUse::kUnusable, "", "no card"};
  EXPECT_EQ(judge_kind(DeviceKind::kIb).why_not, "client: no card");
  listener_.device(DeviceKind::kIb) = {DeviceUse::kUnusable, "", "port down"};
  EXPECT_EQ(judge_kind(DeviceKind::kIb).why_not, "client: no card, listener: port down");
  EXPECT_TRUE(judge_kind(DeviceKind::kIb).is_loss);
  EXPECT_FALSE(judge_kind(DeviceKind::kIb).possible);
}

TEST_F(ChoiceTest, ExclusionIsNoLoss) {
  listener_.device(DeviceKind::kIb).use = DeviceUse::kExcluded;
  listener_.device_setting = "^ib";
  client_.device(DeviceKind::kIb) = {DeviceUse::kUnusable, "", "no card"};
  const Verdict verdict = judge_kind(DeviceKind::kIb);
  EXPECT_EQ(verdict.why_not, "excluded by the listener's device = '^ib'");
  EXPECT_FALSE(verdict.is_loss);
  EXPECT_FALSE(verdict.possible);
}

TEST_F(ChoiceTest, TransportDecidesTheDevice) {
  EXPECT_FALSE(judge_kind(DeviceKind::kShm, "tcp").possible);
  EXPECT_FALSE(judge_kind(DeviceKind::kShm, "tcp").is_loss);
  EXPECT_TRUE(judge_kind(DeviceKind::kTcp, "tcp").possible);
  EXPECT_FALSE(judge_kind(DeviceKind::kTcp, "ring").possible);
  EXPECT_EQ(transport_on(DeviceKind::kShm, "auto"), "ring");
  EXPECT_EQ(transport_on(DeviceKind::kIb, "auto"), "ring");
  EXPECT_EQ(transport_on(DeviceKind::kTcp, "auto"), "tcp");
  EXPECT_EQ(transport_on(DeviceKind::kTcp, "ring"), "");
  EXPECT_EQ(transport_on(DeviceKind::kIb, "pigeon"), "");
}

TEST_F(ChoiceTest, TransportsAreAgreedOn) {
  EXPECT_EQ(agree_on_transport(client_, listener_), "auto");
  listener_.transport = "ring";
  EXPECT_EQ(agree_on_transport(client_, listener_), "ring");
  client_.transport = "ring";
  EXPECT_EQ(agree_on_transport(client_, listener_), "ring");
  listener_.transport = "auto";
  EXPECT_EQ(agree_on_transport(client_, listener_), "ring");
  listener_.transport = "tcp";
  EXPECT_THROW(agree_on_transport(client_, listener_), Error);
  client_.transport = "pigeon";
  EXPECT_THROW(agree_on_transport(client_, listener_), Error);
}

TEST(ChoiceTableTest, NamesFitTheHello) {
  for (const TransportRule& rule : kTransports) {
    EXPECT_LT(std::strlen(rule.name), kTransportNameBytes);
  }
}

}  // namespace
}  // namespace leat::detail
