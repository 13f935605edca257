// Strangers at the rdma_cm port of an offer. Skipped where LEAT_TEST_IB names no device.
#include "verbs/ib/connect.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/system_error.h"
#include "leat/error.h"
#include "support/devices.h"
#include "support/scale.h"
#include "verbs/ib/address.h"
#include "verbs/ib/call.h"
#include "verbs/ib/cm.h"
#include "verbs/table.h"

namespace leat::detail {
namespace {

// What became of a request with that private data to the address in an offer's blob.
rdma_cm_event_type answer_to(std::span<const std::byte> blob, std::span<const std::byte> data) {
  const std::string where = "the stranger's device";
  AddressBytes address;
  std::ranges::copy(blob.subspan(4, address.size()), address.begin());
  const auto port = static_cast<std::uint16_t>(std::to_integer<unsigned>(blob[2]) |
                                               std::to_integer<unsigned>(blob[3]) << 8);
  CmChannel channel(where);
  const CmId id =
      resolve_address(channel, {}, IbAddress::of_bytes(address, port), hang_deadline(), where);
  ib_count(rdma_resolve_route(id.get(), 2000), "rdma_resolve_route", where);
  channel.expect(RDMA_CM_EVENT_ROUTE_RESOLVED, hang_deadline(), where);
  rdma_conn_param request{};
  request.private_data = data.data();
  request.private_data_len = static_cast<std::uint8_t>(data.size());
  request.qp_num = 4711;
  ib_count(rdma_connect(id.get(), &request), "rdma_connect", where);
  return channel.next(hang_deadline(), -1, where).type;
}

// The secret itself crossed the network once, and whoever heard it could connect with it.
TEST(IbConnectTest, TheSecretItselfLetsNobodyIn) {
  const std::vector<std::string> devices = test_devices();
  if (devices.size() < 2) GTEST_SKIP() << "no RDMA device to test with";
  const std::string& name = devices.back();
  const auto device = open_device(name, device_address(name));
  const auto offer = device->offer({16, 16}, device_address(name));
  std::array<int, 2> ends{};
  check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), "socketpair");
  const Fd lifeline(ends[0]);
  Fd peer(ends[1]);
  std::thread accepting(
      [&] { EXPECT_THROW((void)offer->accept(hang_deadline(), lifeline.get()), Error); });
  const std::vector<std::byte> blob = offer->blob();
  const auto secret = std::span(blob).last(16);
  EXPECT_EQ(answer_to(blob, secret), RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(answer_to(blob, std::array<std::byte, 32>{}), RDMA_CM_EVENT_REJECTED);
  peer.reset();
  accepting.join();
}

}  // namespace
}  // namespace leat::detail
