// Whether an attacker in the network sees what channels carry: everything that crosses the cable
// between two devices is captured and searched for the messages. Needs root and two Soft-RoCE
// devices of this host, LEAT_TEST_IB and LEAT_TEST_IB_PEER; has no case without them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "leat/channel.h"
#include "leat/listener.h"
#include "leat/options.h"
#include "support/channel_side.h"
#include "support/devices.h"
#include "support/packet_capture.h"
#include "support/peer_pair.h"
#include "support/plain_text.h"
#include "transport/table.h"
#include "verbs/row.h"

namespace leat::detail {
namespace {

// Of two devices, because packets of a device to itself pass no network device.
struct Cable {
  std::string connecting;
  std::string listening;
};

std::optional<Cable> cable() {
  const char* one = std::getenv("LEAT_TEST_IB");
  const char* other = std::getenv("LEAT_TEST_IB_PEER");
  if (one == nullptr || other == nullptr) return {};
  return Cable{std::string("ib:") + one, std::string("ib:") + other};
}

struct Traffic {
  std::string transport;
  bool rdma;
  std::string confidential = "off";
  std::string becomes = transport;  // the transport that both sides agree on
};
void PrintTo(const Traffic& traffic, std::ostream* out) { *out << traffic.becomes; }

// What each side sends. Small ones first, so that no frame ends within one of 16 bytes, where it
// could not be found.
constexpr std::array<std::size_t, 15> kSizes = {16,   16,   17,   17,   49,    49,    64,     64,
                                                1000, 1000, 4096, 4096, 65537, 65537, 1 << 20};
constexpr std::size_t kBytesOfASide = std::accumulate(kSizes.begin(), kSizes.end(), std::size_t{0});

unsigned context_of_message(std::size_t n) { return n % 2 == 0 ? 0 : 9; }

// The messages of the first side, then those of the second.
const PlainText& plain_text() {
  static const PlainText text = [] {
    std::vector<std::size_t> sizes(kSizes.begin(), kSizes.end());
    sizes.insert(sizes.end(), kSizes.begin(), kSizes.end());
    return PlainText(sizes);
  }();
  return text;
}

std::span<const std::byte> message_of(unsigned side, std::size_t n) {
  return plain_text().message(side * kSizes.size() + n);
}

// In context 0 in place, where that is possible.
void send_all(Channel& channel, unsigned side) {
  for (std::size_t n = 0; n < kSizes.size(); ++n) {
    const unsigned context = context_of_message(n);
    const auto message = message_of(side, n);
    if (context == 0 && message.size() <= channel.max_in_place_bytes()) {
      std::ranges::copy(message, channel.reserve(message.size()).begin());
      channel.commit(message.size());
    } else {
      channel.send(message, context);
    }
  }
  channel.flush();
}

void receive_all(Channel& channel, unsigned side) {
  for (std::size_t n = 0; n < kSizes.size(); ++n) {
    const Message message = channel.receive(context_of_message(n));
    EXPECT_TRUE(std::ranges::equal(message.bytes(), message_of(side, n)))
        << "message " << n << " of side " << side;
  }
}

class CapturedChannel : public testing::TestWithParam<Traffic> {
 protected:
  // Sends the plain text both ways, and looks for it in everything that crossed meanwhile.
  void SetUp() override {
    const Cable ends = *cable();
    PacketCapture capture(network_device(ends.connecting));
    run_pair(
        PeerMode::kThreads,
        [&](Peer& peer) {
          Listener listener(device_address(ends.listening) + ":0", options(ends.listening));
          peer.tell(listener.address());
          peer.hear("connected");  // throws at once if the second side was refused
          Channel channel = listener.accept();
          EXPECT_EQ(channel.transport(), GetParam().becomes);
          receive_all(channel, 0);
          send_all(channel, 1);
          channel.shutdown();
          EXPECT_FALSE(channel.receive());
        },
        [&](Peer& peer) {
          Channel channel = Channel::connect(peer.hear(), options(ends.connecting));
          peer.tell("connected");
          EXPECT_EQ(channel.transport(), GetParam().becomes);
          send_all(channel, 0);
          receive_all(channel, 1);
          channel.shutdown();
          EXPECT_FALSE(channel.receive());
        });
    std::array<std::size_t, 2> captured{};
    capture.look_through([&](std::span<const std::byte> frame, bool leaving) {
      search_.look_in(frame);
      captured[leaving ? 0 : 1] += payload_bytes(frame);
    });
    for (const std::size_t bytes : captured)
      EXPECT_GE(bytes, kBytesOfASide)
          << "not all was captured; of RDMA the kernel sees only what Soft-RoCE sends";
  }

  PlainTextSearch search_{plain_text()};

 private:
  static Options options(const std::string& device) {
    const Traffic& traffic = GetParam();
    Options made =
        channel_options({traffic.transport, traffic.rdma ? device : std::string(kNoDevice)});
    made.confidential = traffic.confidential;
    if (traffic.confidential != "off") made.tls_psk_file = channel_key_file();
    return made;
  }
};

class CapturedInClear : public CapturedChannel {};
class CapturedSealed : public CapturedChannel {};

// Without this the other one could not fail.
TEST_P(CapturedInClear, AllOfThePlainTextShows) {
  for (std::size_t n = 0; n < plain_text().count(); ++n) {
    const std::size_t bytes = plain_text().message(n).size();
    // A frame may end after the first few bytes of what it goes on with.
    EXPECT_GE(search_.found(n), bytes - bytes / 100) << "of message " << n;
  }
}

TEST_P(CapturedSealed, NoSixteenBytesOfThePlainTextShow) {
  for (std::size_t n = 0; n < plain_text().count(); ++n)
    EXPECT_EQ(search_.found(n), 0U) << "of message " << n;
}

std::vector<Traffic> traffic_in_clear() {
  std::vector<Traffic> all;
  if (!cable()) return all;
  for (const TransportRow& row : transport_rows()) all.push_back({row.name, row.rdma});
  return all;
}

std::vector<Traffic> traffic_sealed() {
  std::vector<Traffic> all;
  if (!cable()) return all;
  for (const TransportRow& row : transport_rows())
    all.push_back({std::string("sealed+") + row.name, row.rdma});
  all.push_back({"attested+sealed+ring", true});
  all.push_back({"auto", true, "require", "sealed+ring"});
  all.push_back({"auto", false, "require", "tcp"});
  return all;
}

std::string traffic_name(const testing::TestParamInfo<Traffic>& parameters) {
  const Traffic& traffic = parameters.param;
  return (traffic.confidential == "off" ? "" : traffic.confidential + "_gives_") +
         device_label(traffic.becomes);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CapturedInClear);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CapturedSealed);
INSTANTIATE_TEST_SUITE_P(OnACable, CapturedInClear, testing::ValuesIn(traffic_in_clear()),
                         traffic_name);
INSTANTIATE_TEST_SUITE_P(OnACable, CapturedSealed, testing::ValuesIn(traffic_sealed()),
                         traffic_name);

}  // namespace
}  // namespace leat::detail
