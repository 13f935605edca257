// Which port is used, and strangers at the rdma_cm port of an offer and in its place. Skipped where
// LEAT_TEST_IB names no device.
#include "verbs/ib/connect.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/system_error.h"
#include "leat/error.h"
#include "support/devices.h"
#include "support/errors.h"
#include "support/link_pair.h"
#include "support/scale.h"
#include "verbs/ib/address.h"
#include "verbs/ib/call.h"
#include "verbs/ib/cm.h"
#include "verbs/ib/row.h"
#include "verbs/table.h"

namespace leat::detail {
namespace {

constexpr const char* kStranger = "the stranger's device";

// The address in an offer's blob.
IbAddress address_in(std::span<const std::byte> blob) {
  AddressBytes address;
  std::ranges::copy(blob.subspan(4, address.size()), address.begin());
  const auto port = static_cast<std::uint16_t>(std::to_integer<unsigned>(blob[2]) |
                                               std::to_integer<unsigned>(blob[3]) << 8);
  return IbAddress::of_bytes(address, port);
}

// What became of a request with that private data to the address in an offer's blob.
rdma_cm_event_type answer_to(std::span<const std::byte> blob, std::span<const std::byte> data) {
  const std::string where = kStranger;
  CmChannel channel(where);
  const CmId id = resolve_address(channel, {}, address_in(blob), hang_deadline(), where);
  ib_count(rdma_resolve_route(id.get(), 2000), "rdma_resolve_route", where);
  channel.expect(RDMA_CM_EVENT_ROUTE_RESOLVED, hang_deadline(), where);
  rdma_conn_param request{};
  request.private_data = data.data();
  request.private_data_len = static_cast<std::uint8_t>(data.size());
  request.qp_num = 4711;
  ib_count(rdma_connect(id.get(), &request), "rdma_connect", where);
  return channel.next(hang_deadline(), -1, where).type;
}

// The secret itself crossed the network once, and any listener there could have connected with it.
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

// An attacker that takes the place of an offer's listener: it accepts what comes to it, with
// private data that it makes from the request's.
class Impostor {
 public:
  using Reply = std::function<std::vector<std::byte>(const CmEvent& request)>;

  // Changes the blob, so that it leads here.
  Impostor(std::vector<std::byte>& blob, Reply reply)
      : channel_(kStranger), listener_(channel_.make_id(kStranger)), reply_(std::move(reply)) {
    IbAddress address = address_in(blob);
    address.set_port(0);
    ib_count(rdma_bind_addr(listener_.get(), address.get()), "rdma_bind_addr", kStranger);
    ib_count(rdma_listen(listener_.get(), 1), "rdma_listen", kStranger);
    const unsigned port = ntohs(rdma_get_src_port(listener_.get()));
    blob[2] = static_cast<std::byte>(port & 0xff);
    blob[3] = static_cast<std::byte>(port >> 8);
    thread_ = std::thread([this] { accept(); });
  }
  ~Impostor() { thread_.join(); }
  Impostor(const Impostor&) = delete;
  Impostor& operator=(const Impostor&) = delete;

 private:
  void accept() {
    const CmEvent request = channel_.next(hang_deadline(), -1, kStranger);
    ASSERT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
    peer_.reset(request.id);
    const std::vector<std::byte> data = reply_(request);
    rdma_conn_param answer{};
    answer.private_data = data.data();
    answer.private_data_len = static_cast<std::uint8_t>(data.size());
    answer.qp_num = 4711;
    ib_count(rdma_accept(peer_.get(), &answer), "rdma_accept", kStranger);
  }

  CmChannel channel_;
  CmId listener_;
  CmId peer_;
  const Reply reply_;
  std::thread thread_;
};

// Neither nothing, nor the secret itself, nor what the connecting side has just shown.
TEST(IbConnectTest, AReplyWithoutTheSecretIsRefused) {
  const std::vector<std::string> devices = test_devices();
  if (devices.size() < 2) GTEST_SKIP() << "no RDMA device to test with";
  const std::string& name = devices.back();
  const auto device = open_device(name, device_address(name));
  const auto offer = device->offer({16, 16}, device_address(name));
  for (const Impostor::Reply& reply : std::initializer_list<Impostor::Reply>{
           [](const CmEvent&) { return std::vector<std::byte>(CmEvent::kPrivateBytes); },
           [&](const CmEvent&) {
             const std::vector<std::byte> blob = offer->blob();
             return std::vector<std::byte>(blob.end() - 16, blob.end());
           },
           [](const CmEvent& request) {
             return std::vector<std::byte>(request.private_data.begin(),
                                           request.private_data.end());
           }}) {
    std::vector<std::byte> blob = offer->blob();
    const Impostor impostor(blob, reply);
    EXPECT_THAT(error_of(ErrorCode::kAuthentication,
                         [&] {
                           (void)device->connect(blob, {16, 16}, hang_deadline());
                         }),
                testing::HasSubstr("does not know the offer's secret"));
  }
}

TEST(IbConnectTest, PortThatTheRouteDoesNotUseIsNotUsed) {
  const std::vector<std::string> devices = test_devices();
  if (devices.size() < 2) GTEST_SKIP() << "no RDMA device to test with";
  const auto [name, right, why_not] = find_ib_device({"127.0.0.1", "127.0.0.1"});
  ASSERT_FALSE(name.empty()) << why_not;
  LinkPair good(link_settings(right), link_settings("auto"));
  EXPECT_EQ(good.active.get().device_name, name);
  const std::string wrong =
      name + ":" + std::to_string(std::stoi(right.substr(name.size() + 1)) + 1);
  LinkPair pair(link_settings("auto"), link_settings(wrong));
  pair.active.expect_error(ErrorCode::kUnavailable,
                           {right.c_str(), wrong.c_str(), "does not allow"});
  EXPECT_THROW(open_device(wrong, "127.0.0.1"), Error);
}

}  // namespace
}  // namespace leat::detail
