// What the ib device tells of itself and of what keeps it from working. Those tests that need a
// device are skipped where LEAT_TEST_IB names none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "leat/error.h"
#include "support/devices.h"
#include "support/peer_pair.h"
#include "verbs/ib/address.h"
#include "verbs/ib/call.h"
#include "verbs/ib/probe.h"
#include "verbs/ib/row.h"
#include "verbs/table.h"

namespace leat::detail {
namespace {

std::string ib_device_for_route(const std::string& local, const std::string& peer,
                                std::string& why_not) {
  const RoutedDevice found = find_ib_device({local, peer});
  why_not = found.why_not;
  return found.name;
}

using testing::HasSubstr;
using testing::StartsWith;

// Root may lock as much as it likes unless it gives this up.
void drop_right_to_lock_memory() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  ASSERT_EQ(::syscall(SYS_capget, &header, data), 0);
  data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
  ASSERT_EQ(::syscall(SYS_capset, &header, data), 0);
}

void limit_locked_memory(rlim_t bytes) {
  drop_right_to_lock_memory();
  const rlimit limit{bytes, bytes};
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

// --- Without a device

TEST(IbError, OfAFailedRegistrationNamesTheLimitAndHowToRaiseIt) {
  run_process("limited", [] {
    limit_locked_memory(8192 * 1024);
    const Error error = ib_error("ibv_reg_mr(64 MiB)", "mlx5_0:1", ENOMEM);
    EXPECT_EQ(error.code(), ErrorCode::kResource);
    EXPECT_EQ(error.system_errno(), ENOMEM);
    EXPECT_THAT(error.what(),
                StartsWith("ibv_reg_mr(64 MiB) on mlx5_0:1 failed: Cannot allocate memory. Raise "
                           "the locked-memory limit (current: 8192 kB): ulimit -l unlimited, "
                           "limits.conf, or LimitMEMLOCK= in systemd."));
  });
}

TEST(IbError, OfADeniedDeviceSaysWhichFilesAndWhatToDoInAContainer) {
  const Error error = ib_error("ibv_open_device(/dev/infiniband/uverbs0)", "mlx5_0", EACCES);
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
  EXPECT_THAT(error.what(), HasSubstr("Permission denied"));
  EXPECT_THAT(error.what(), HasSubstr("--device=/dev/infiniband"));
}

TEST(IbError, HelpersTellTheThreeStylesOfFailureApart) {
  int object = 0;
  EXPECT_EQ(ib_pointer(&object, "call", "device"), &object);
  EXPECT_NO_THROW(ib_status(0, "call", "device"));
  EXPECT_EQ(ib_count(3, "call", "device"), 3);
  const auto errno_of = [](auto&& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.system_errno();
    }
    return 0;
  };
  errno = EBUSY;
  EXPECT_EQ(errno_of([] { ib_pointer<int>(nullptr, "call", "device"); }), EBUSY);
  EXPECT_EQ(errno_of([] { ib_status(EINVAL, "call", "device"); }), EINVAL);
  EXPECT_EQ(errno_of([] { ib_count(-1, "call", "device"); }), EBUSY);
  EXPECT_EQ(errno_of([] { ib_count(-EINVAL, "call", "device"); }), EINVAL);
}

TEST(IbAddress, KeepsIPv4AndIPv6ThroughTheBytesOfAnOffer) {
  for (const char* text : {"10.0.0.1", "2001:db8::7", "::1", "255.255.255.255"}) {
    IbAddress address = IbAddress::parse(text);
    EXPECT_EQ(address.text(), text);
    const IbAddress copy = IbAddress::of_bytes(address.bytes(), 4711);
    EXPECT_EQ(copy.text(), text);
    EXPECT_EQ(copy.port(), 4711);
  }
}

TEST(IbAddress, TakesAMappedAddressForTheIPv4AddressThatItIs) {
  const IbAddress address = IbAddress::parse("::ffff:10.0.0.1");
  EXPECT_FALSE(address.is_v6());
  EXPECT_EQ(address.text_with_port(), "10.0.0.1:0");
}

TEST(IbAddress, KeepsTheInterfaceOfALinkLocalAddress) {
  const IbAddress address = IbAddress::parse("fe80::1%lo");
  EXPECT_TRUE(address.is_link_local());
  EXPECT_NE(address.scope(), 0u);
  EXPECT_EQ(address.text_with_port(), "[fe80::1%lo]:0");
}

TEST(IbAddress, RefusesNamesAndNothing) {
  for (const char* text : {"", "localhost", "10.0.0.256", "10.0.0.1:80", "[::1]"}) {
    EXPECT_THROW(IbAddress::parse(text), Error) << text;
  }
}

TEST(IbProbe, TellsOtherDevicesWhatTheyLack) {
  EXPECT_NO_THROW(check_ib_transport(IBV_TRANSPORT_IB, "mlx5_0"));
  const auto refusal = [](ibv_transport_type type, const std::string& name) -> std::string {
    try {
      check_ib_transport(type, name);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
      return error.what();
    }
    return "none";
  };
  EXPECT_THAT(refusal(IBV_TRANSPORT_IWARP, "siw0"),
              testing::AllOf(HasSubstr("siw0 is an iWARP device"), HasSubstr("immediate data"),
                             HasSubstr("go over TCP")));
  EXPECT_THAT(refusal(IBV_TRANSPORT_UNSPECIFIED, "efa_0"),
              testing::AllOf(HasSubstr("reliable connected"), HasSubstr("EFA"),
                             testing::Not(HasSubstr("iWARP")), HasSubstr("go over TCP")));
}

TEST(NoIbDevice, IsSaid) {
  if (count_ib_devices() != 0) GTEST_SKIP() << "this machine has an RDMA device";
  const DeviceInfo info = probe_device("ib:mlx5_0");
  EXPECT_FALSE(info.usable);
  EXPECT_EQ(info.name, "ib:mlx5_0");
  EXPECT_THAT(info.why_not, HasSubstr("no RDMA device"));
  std::string why_not;
  EXPECT_EQ(ib_device_for_route("", "10.0.0.1", why_not), "");
  EXPECT_THAT(why_not, HasSubstr("no RDMA device"));
  EXPECT_THROW(open_device("ib", "10.0.0.1"), Error);
}

// --- With one

class IbDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* name = std::getenv("LEAT_TEST_IB");
    if (name == nullptr || *name == '\0') GTEST_SKIP() << "LEAT_TEST_IB names no verbs device";
    name_ = std::string("ib:") + name;
    const DeviceInfo info = probe_device(name_);
    ASSERT_TRUE(info.usable) << info.why_not;
  }

  std::string name_;
};

TEST_F(IbDeviceTest, DescriptionHasLinkLayerMtuGidAndAddress) {
  const DeviceInfo info = probe_device(name_);
  EXPECT_THAT(info.description, HasSubstr(name_.substr(3) + ":1 Ethernet, MTU "));
  EXPECT_THAT(info.description, HasSubstr("GID ::ffff:" + device_address(name_)));
  EXPECT_THAT(info.description, HasSubstr("RoCE v2"));
  EXPECT_THAT(info.description, HasSubstr(" " + device_address(name_) + " "));
  EXPECT_GE(info.mtu_bytes, 256u);
}

TEST_F(IbDeviceTest, UnknownNameListsTheDevicesThatThereAre) {
  const DeviceInfo info = probe_device("ib:nothing");
  EXPECT_FALSE(info.usable);
  EXPECT_THAT(info.why_not, HasSubstr("no RDMA device nothing"));
  EXPECT_THAT(info.why_not, HasSubstr(name_.substr(3)));
}

TEST_F(IbDeviceTest, IsFoundByTheRoute) {
  const std::string address = device_address(name_);
  std::string why_not;
  EXPECT_EQ(ib_device_for_route(address, "", why_not), name_) << why_not;
  EXPECT_EQ(ib_device_for_route("::ffff:" + address, "", why_not), name_) << why_not;
  if (count_ib_devices() == 1) {  // else the route to it may start at another
    EXPECT_EQ(ib_device_for_route("", address, why_not), name_) << why_not;
    EXPECT_EQ(ib_device_for_route(address, address, why_not), name_) << why_not;
    EXPECT_EQ(open_device("ib", address)->info().name, name_);
  }
  for (const char* loopback : {"127.0.0.1", "::1"}) {
    EXPECT_THAT(ib_device_for_route("", loopback, why_not), StartsWith("ib:")) << why_not;
    EXPECT_THAT(ib_device_for_route(loopback, loopback, why_not), StartsWith("ib:")) << why_not;
  }
  for (const IbAddress& own : ib_addresses(name_.substr(3))) {
    EXPECT_EQ(ib_device_for_route(own.text(), "", why_not), name_) << why_not;
  }
}

TEST_F(IbDeviceTest, IsNotFoundWhereTheRouteUsesAnother) {
  for (const char* elsewhere : {"192.0.2.1", "2001:db8::1", "not an address"}) {
    std::string why_not;
    EXPECT_EQ(ib_device_for_route("", elsewhere, why_not), "") << elsewhere;
    EXPECT_THAT(why_not, HasSubstr(elsewhere));
  }
  std::string why_not;
  EXPECT_EQ(ib_device_for_route("0.0.0.0", "", why_not), "");
  EXPECT_THAT(why_not, HasSubstr("0.0.0.0"));
  for (const char* elsewhere : {"192.0.2.1", "0.0.0.0", "::", ""}) {
    EXPECT_THROW(open_device(name_, "")->offer({}, elsewhere), Error) << elsewhere;
  }
}

TEST_F(IbDeviceTest, AllocatingAboveTheLimitSaysHowToRaiseIt) {
  run_process("limited", [this] {
    limit_locked_memory(4 << 20);
    const auto device = open_device(name_, "");
    EXPECT_THAT(device->info().description, HasSubstr("locked-memory limit 4096 kB"));
    const auto fits = device->allocate(1 << 20, kRemoteWrite);
    try {
      device->allocate(64 << 20, kRemoteWrite);
      ADD_FAILURE() << "64 MiB registered";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResource);
      EXPECT_THAT(error.what(),
                  StartsWith("ibv_reg_mr(64 MiB) on " + name_.substr(3) +
                             ":1 failed: Cannot allocate memory. Raise the locked-memory limit "
                             "(current: 4096 kB): "));
    }
  });
}

TEST_F(IbDeviceTest, ProbingUnderALimitOfNothingSaysSo) {
  run_process("limited", [this] {
    limit_locked_memory(0);
    const DeviceInfo info = probe_device(name_);
    EXPECT_FALSE(info.usable);
    EXPECT_THAT(info.why_not, HasSubstr("locked-memory limit (current: 0 kB)"));
    EXPECT_THROW(open_device(name_, ""), Error);
  });
}

TEST_F(IbDeviceTest, ProbingInAContainerWithoutTheDeviceFilesSaysSo) {
  run_process("container", [this] {
    if (::unshare(CLONE_NEWNS) != 0) GTEST_SKIP() << "only root can hide /dev/infiniband";
    ASSERT_EQ(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    ASSERT_EQ(::mount("tmpfs", "/dev/infiniband", "tmpfs", 0, nullptr), 0);
    const DeviceInfo info = probe_device(name_);
    EXPECT_FALSE(info.usable);
    EXPECT_THAT(info.why_not, HasSubstr("files in /dev/infiniband are missing"));
    EXPECT_THAT(info.why_not, HasSubstr(name_.substr(3)));
    EXPECT_THAT(info.why_not, HasSubstr("--device=/dev/infiniband"));
    EXPECT_THROW(open_device(name_, ""), Error);
  });
}

}  // namespace
}  // namespace leat::detail
