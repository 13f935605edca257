// The rules by which two sides find a device and a transport.
#include "handshake/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "leat/error.h"
#include "transport/table.h"

namespace leat::detail {
namespace {

Hello hello_of(std::byte boot, std::uint32_t user = 1000, std::uint64_t network = 5) {
  Hello hello;
  hello.host.boot_id.fill(boot);
  hello.host.user = user;
  hello.host.network = network;
  for (const DeviceRow& kind : device_rows()) hello.device(kind.kind).use = DeviceUse::kAllowed;
  hello.device_setting = "auto";
  return hello;
}

class ChoiceTest : public testing::Test {
 protected:
  Hello client_ = hello_of(std::byte{1});
  Hello listener_ = hello_of(std::byte{1});

  Verdict judge_kind(const char* kind, const std::string& transport = "auto") const {
    return judge(*find_device_row(kind), client_, listener_, {transport});
  }
  static std::string on(const char* kind, const std::string& transport) {
    return transport_on(*find_device_row(kind), {transport});
  }
};

TEST_F(ChoiceTest, ShmNeedsOneHostUserAndNamespace) {
  EXPECT_TRUE(judge_kind("shm").possible);

  listener_ = hello_of(std::byte{2});
  EXPECT_EQ(judge_kind("shm").why_not, "other host");
  EXPECT_FALSE(judge_kind("shm").is_loss) << "it cannot be";

  listener_ = hello_of(std::byte{1}, 0);
  EXPECT_EQ(judge_kind("shm").why_not, "other user (client 1000, listener 0)");
  EXPECT_TRUE(judge_kind("shm").is_loss);

  listener_ = hello_of(std::byte{1}, 1000, 6);
  EXPECT_EQ(judge_kind("shm").why_not, "other network namespace");
  EXPECT_FALSE(judge_kind("shm").possible);
}

TEST_F(ChoiceTest, UnknownIdentitiesNeverMatch) {
  client_ = listener_ = hello_of(std::byte{0});
  EXPECT_FALSE(judge_kind("shm").possible);
  client_ = listener_ = hello_of(std::byte{1}, 1000, 0);
  EXPECT_FALSE(judge_kind("shm").possible);
  client_ = listener_ = hello_of(std::byte{1}, HostIdentity::kUnknownUser);
  EXPECT_FALSE(judge_kind("shm").possible);
  EXPECT_EQ(judge_kind("shm").why_not, "the user namespace of the client does not map its user");
}

TEST_F(ChoiceTest, UnusableDevicesTellBothSidesReasons) {
  client_.device("ib") = {DeviceUse::kUnusable, "", "no card"};
  EXPECT_EQ(judge_kind("ib").why_not, "client: no card");
  listener_.device("ib") = {DeviceUse::kUnusable, "", "port down"};
  EXPECT_EQ(judge_kind("ib").why_not, "client: no card, listener: port down");
  EXPECT_TRUE(judge_kind("ib").is_loss);
  EXPECT_FALSE(judge_kind("ib").possible);
}

TEST_F(ChoiceTest, ExclusionIsNoLoss) {
  listener_.device("ib").use = DeviceUse::kExcluded;
  listener_.device_setting = "^ib";
  client_.device("ib") = {DeviceUse::kUnusable, "", "no card"};
  const Verdict verdict = judge_kind("ib");
  EXPECT_EQ(verdict.why_not, "excluded by the listener's device = '^ib'");
  EXPECT_FALSE(verdict.is_loss);
  EXPECT_FALSE(verdict.possible);
}

TEST_F(ChoiceTest, DeviceThatTheClientDoesNotKnowIsNotTried) {
  std::erase_if(client_.devices, [](const KnownDevice& device) { return device.kind == "ib"; });
  EXPECT_EQ(judge_kind("ib").why_not, "the leat of the client does not know it");
  EXPECT_FALSE(judge_kind("ib").possible);
  EXPECT_TRUE(judge_kind("tcp").possible);
}

TEST_F(ChoiceTest, TransportDecidesTheDevice) {
  EXPECT_FALSE(judge_kind("shm", "tcp").possible);
  EXPECT_FALSE(judge_kind("shm", "tcp").is_loss);
  EXPECT_TRUE(judge_kind("tcp", "tcp").possible);
  EXPECT_FALSE(judge_kind("tcp", "ring").possible);
  EXPECT_EQ(on("shm", "auto"), "ring");
  EXPECT_EQ(on("ib", "auto"), "ring");
  EXPECT_EQ(on("tcp", "auto"), "tcp");
  EXPECT_EQ(on("tcp", "ring"), "");
  EXPECT_EQ(on("ib", "pigeon"), "");
  EXPECT_EQ(on("shm", "attested+confirm-each"), "attested+confirm-each");
  EXPECT_EQ(on("tcp", "attested+tcp"), "attested+tcp");
  EXPECT_EQ(on("tcp", "attested+ring"), "");
  EXPECT_EQ(on("shm", "attested+tcp"), "");
}

TEST_F(ChoiceTest, TransportsAreAgreedOn) {
  EXPECT_EQ(agree_on_transport(client_, listener_).transport, "auto");
  listener_.transport = "ring";
  EXPECT_EQ(agree_on_transport(client_, listener_).transport, "ring");
  client_.transport = "ring";
  EXPECT_EQ(agree_on_transport(client_, listener_).transport, "ring");
  listener_.transport = "auto";
  EXPECT_EQ(agree_on_transport(client_, listener_).transport, "ring");
  listener_.transport = "tcp";
  EXPECT_THROW(agree_on_transport(client_, listener_), Error);
  client_.transport = "pigeon";
  EXPECT_THROW(agree_on_transport(client_, listener_), Error);
}

TEST(ChoiceTableTest, NamesFitTheHello) {
  EXPECT_LE(device_rows().size(), kMaxDevices);
  for (const DeviceRow& row : device_rows()) EXPECT_LT(std::strlen(row.kind), kDeviceKindBytes);
  for (const TransportRow& row : transport_rows()) {
    EXPECT_LT(std::strlen(row.name), kTransportNameBytes);
    for (const Decoration& decoration : decorations())
      EXPECT_LT(decoration.prefix.size() + std::strlen(row.name), kTransportNameBytes);
  }
}

// Settings of one side that has a key for TLS, or none.
Settings confidential_settings(Confidential confidential, const std::string& transport = "auto",
                               bool key = true) {
  Settings settings;
  settings.confidential = confidential;
  settings.transport = transport;
  if (key) settings.tls_psk_file = "key";
  return settings;
}

TEST_F(ChoiceTest, AWishForSecrecyNeedsAKey) {
  EXPECT_FALSE(wishes_sealing(confidential_settings(Confidential::kOff)));
  EXPECT_FALSE(wishes_sealing(confidential_settings(Confidential::kRequire, "auto", false)));
  EXPECT_TRUE(wishes_sealing(confidential_settings(Confidential::kPrefer)));
  EXPECT_TRUE(wishes_sealing(confidential_settings(Confidential::kRequire, "chunked")));
}

TEST_F(ChoiceTest, AWishForSecrecyOfEitherSideSealsWhatLeavesTheHost) {
  for (Hello* side : {&client_, &listener_}) {
    client_.seals = listener_.seals = false;
    EXPECT_FALSE(agree_on_transport(client_, listener_).seals);
    side->seals = true;
    EXPECT_TRUE(agree_on_transport(client_, listener_).seals);
    EXPECT_EQ(agree_on_transport(client_, listener_).transport, "auto");
  }
  const auto sealing = [](const char* kind, const std::string& transport) {
    return transport_on(*find_device_row(kind), {transport, true});
  };
  EXPECT_EQ(sealing("ib", "auto"), "sealed+ring");
  EXPECT_EQ(sealing("shm", "auto"), "ring");
  EXPECT_EQ(sealing("tcp", "auto"), "tcp");
  for (const TransportRow& row : transport_rows()) {
    if (row.rdma) {
      EXPECT_EQ(sealing("ib", row.name), std::string("sealed+") + row.name);
    }
    EXPECT_EQ(sealing(row.rdma ? "shm" : "tcp", row.name), row.name);
  }
  EXPECT_EQ(sealing("ib", "sealed+ring"), "sealed+ring");
  EXPECT_EQ(sealing("shm", "sealed+ring"), "sealed+ring");
  EXPECT_EQ(sealing("ib", "attested+ring"), "attested+sealed+ring");
  EXPECT_EQ(sealing("ib", "attested+sealed+ring"), "attested+sealed+ring");
  EXPECT_EQ(sealing("tcp", "ring"), "");
}

TEST_F(ChoiceTest, AnAnswerIsTheTransportWishedForOrThatSealed) {
  const auto may = [](const char* kind, const char* answer, const char* wish) {
    return may_answer(*find_device_row(kind), answer, wish);
  };
  EXPECT_TRUE(may("ib", "chunked", "chunked"));
  EXPECT_TRUE(may("ib", "sealed+chunked", "chunked"));
  EXPECT_TRUE(may("ib", "batched", "auto"));
  EXPECT_TRUE(may("tcp", "tcp", "auto"));
  EXPECT_FALSE(may("shm", "sealed+chunked", "chunked")) << "it stays in this host";
  EXPECT_FALSE(may("ib", "ring", "chunked"));
  EXPECT_FALSE(may("ib", "sealed+ring", "chunked"));
  EXPECT_FALSE(may("ib", "ring", "sealed+ring"));
  for (const char* nonsense : {"", "auto", "sealed+auto", "sealed+", "tcp", "pigeon"})
    EXPECT_FALSE(may("ib", nonsense, "auto")) << nonsense;
}

TEST_F(ChoiceTest, TestsMayCountEveryDeviceAsLeavingTheHost) {
  EXPECT_FALSE(leaves_host(*find_device_row("shm")));
  EXPECT_TRUE(leaves_host(*find_device_row("ib")));
  EXPECT_TRUE(leaves_host(*find_device_row("tcp")));
  count_all_as_leaving(true);
  EXPECT_TRUE(leaves_host(*find_device_row("shm")));
  count_all_as_leaving(false);
}

TEST_F(ChoiceTest, RequiredSecrecyForbidsWhatGoesInClear) {
  const auto forbidden = [](Confidential confidential, const char* device,
                            const std::string& transport, bool tls) {
    return forbidden_in_clear(confidential_settings(confidential), *find_device_row(device),
                              transport, tls);
  };
  const auto require = Confidential::kRequire;
  EXPECT_EQ(forbidden(require, "shm", "ring", false), "");
  EXPECT_EQ(forbidden(require, "ib", "sealed+ring", true), "");
  EXPECT_EQ(forbidden(require, "ib", "attested+sealed+ring", true), "");
  EXPECT_EQ(forbidden(require, "tcp", "tcp", true), "");
  EXPECT_NE(forbidden(require, "ib", "ring", true).find("sealed+"), std::string::npos);
  EXPECT_NE(forbidden(require, "ib", "attested+ring", true).find("sealed+ before"),
            std::string::npos);
  EXPECT_NE(forbidden(require, "tcp", "tcp", false).find("tls_psk_file"), std::string::npos);
  EXPECT_EQ(forbidden(Confidential::kPrefer, "ib", "ring", true), "");
  EXPECT_EQ(forbidden(Confidential::kOff, "tcp", "tcp", false), "");
}

TEST(ChoiceTableTest, DecoratorsComposeWithEveryTransportAndInOneOrder) {
  std::vector<std::string> prefixes;
  for (const Decoration& decoration : decorations()) prefixes.push_back(decoration.prefix);
  EXPECT_THAT(prefixes, testing::UnorderedElementsAre("attested+", "sealed+", "attested+sealed+"));
  for (const TransportRow& row : transport_rows())
    for (const std::string& prefix : prefixes)
      EXPECT_EQ(find_transport(prefix + row.name), &row) << row.name;
  for (const char* unknown :
       {"", "attested+", "attested", "attested+pigeon", "ring+attested", "attested+attested+ring",
        "attested+auto", "sealed+", "sealed+sealed+ring", "sealed+attested+ring"})
    EXPECT_EQ(find_transport(unknown), nullptr) << unknown;
}

}  // namespace
}  // namespace leat::detail
