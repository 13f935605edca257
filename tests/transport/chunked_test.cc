// What only transport chunked does: its modes, windows and digests, transfers received in place,
// and byte streams over it. The rest of its promises is in the conformance suites.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "leat/socket.h"
#include "support/channel_side.h"
#include "support/devices.h"

namespace leat::detail {
namespace {

struct Variant {
  std::string name;
  std::function<void(Options&)> set;
};
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

std::vector<Variant> variants() {
  return {
      {"inplace_auto", [](Options&) {}},
      {"inplace_window_1", [](Options& options) { options.chunked_window = "1"; }},
      {"inplace_window_5", [](Options& options) { options.chunked_window = "5"; }},
      {"link_on", [](Options& options) { options.chunked_link_enable = "on"; }},
      {"link_off", [](Options& options) { options.chunked_link_enable = "off"; }},
      {"short_chunks", [](Options& options) { options.chunked_chunk_bytes = 4096; }},
      {"two_regions", [](Options& options) { options.chunked_region_count = 2; }},
      {"verify", [](Options& options) { options.chunked_verify = true; }},
      {"header_window_1",
       [](Options& options) {
         options.chunked_mode = "header";
         options.chunked_window = "1";
         options.chunked_chunk_bytes = 64 << 10;
       }},
      {"header_verify",
       [](Options& options) {
         options.chunked_mode = "header";
         options.chunked_verify = true;
         options.chunked_chunk_bytes = 100'000;
       }},
  };
}

// Parameters: device, threads or processes, options of the sending side.
class Chunked : public testing::TestWithParam<std::tuple<std::string, PeerMode, Variant>> {
 protected:
  Options options(bool varied) const {
    const std::string& device = std::get<0>(GetParam());
    Options options = channel_options({"chunked", device});
    options.chunked_region_bytes = 4 * kMiB;
    if (varied) std::get<2>(GetParam()).set(options);
    return options;
  }
  // The second side connects, with the options of the variant.
  void run(const std::function<void(Peer&, Listener&)>& first,
           const std::function<void(Peer&, const std::string&)>& second) const {
    run_pair(
        std::get<1>(GetParam()),
        [&](Peer& peer) {
          Listener listener(listening_address({"chunked", std::get<0>(GetParam())}),
                            options(false));
          peer.tell(listener.address());
          first(peer, listener);
          peer.barrier();
        },
        [&](Peer& peer) {
          second(peer, peer.hear());
          peer.barrier();
        });
  }
  bool in_place() const { return !std::get<2>(GetParam()).name.starts_with("header"); }
};

constexpr auto kSizes = std::to_array<std::size_t>(
    {0, 1, 4095, 4096, 4097, 50'000, kMiB, 4 * kMiB - 1, 4 * kMiB, 4 * kMiB + 1, 9 * kMiB + 5, 3});

TEST_P(Chunked, TransfersOfAllSizesArriveIntactAndInPlaceAsFarAsTheyFitARegion) {
  run(
      [&](Peer&, Listener& listener) {
        Channel channel = listener.accept();
        std::uint64_t reassembled = 0;
        for (std::size_t i = 0; i < kSizes.size(); ++i) {
          ASSERT_NO_FATAL_FAILURE(expect_message(channel.receive(), kSizes[i], i));
          if (kSizes[i] > 4 * kMiB) ++reassembled;
        }
        if (in_place()) {
          EXPECT_EQ(channel.stats().reassembled_messages, reassembled);
        } else {
          EXPECT_GT(channel.stats().reassembled_messages, reassembled);
        }
        EXPECT_FALSE(channel.receive());
      },
      [&](Peer&, const std::string& address) {
        Channel channel = Channel::connect(address, options(true));
        EXPECT_EQ(channel.transport(), "chunked");
        if (in_place()) {
          EXPECT_EQ(channel.max_in_place_bytes(), 4 * kMiB);
        }
        for (std::size_t i = 0; i < kSizes.size(); ++i) send_pattern(channel, kSizes[i], i);
        channel.shutdown();
        EXPECT_GE(channel.stats().chunks, kSizes.size());
      });
}

TEST_P(Chunked, ReservedTransfersArriveIntact) {
  run(
      [&](Peer&, Listener& listener) {
        Channel channel = listener.accept();
        for (std::size_t i = 0; i < 8; ++i)
          ASSERT_NO_FATAL_FAILURE(expect_message(channel.receive(2), 400'000 >> (i % 4), i));
        EXPECT_FALSE(channel.receive(2));
      },
      [&](Peer&, const std::string& address) {
        Options varied = options(true);
        varied.chunked_region_bytes = 4 * kMiB;
        Channel channel = Channel::connect(address, varied);
        for (std::size_t i = 0; i < 8; ++i) {
          const std::size_t bytes = std::size_t{400'000} >> (i % 4);
          if (bytes > channel.max_in_place_bytes(2)) {
            send_pattern(channel, bytes, i, 2);
            continue;
          }
          fill_pattern(channel.reserve(bytes, 2), i);
          channel.commit(bytes);
        }
        channel.shutdown();
      });
}

TEST_P(Chunked, CarriesByteStreamsInBothDirections) {
  const std::size_t bytes = 11 * kMiB + 7;
  const auto exchange = [&](Socket socket) {
    std::vector<std::byte> out(bytes);
    std::vector<std::byte> in(bytes);
    fill_pattern(out, 5);
    std::thread receiver([&] { EXPECT_TRUE(socket.recv_all(in)); });
    socket.send_all(out);
    receiver.join();
    EXPECT_EQ(pattern_mismatch(in, 5), bytes);
  };
  run(
      [&](Peer& peer, Listener& listener) {
        exchange(Socket::accept(listener));
        peer.barrier();
      },
      [&](Peer& peer, const std::string& address) {
        exchange(Socket::connect(address, options(true)));
        peer.barrier();
      });
}

std::string chunked_test_name(const testing::TestParamInfo<Chunked::ParamType>& parameters) {
  const auto& [device, mode, variant] = parameters.param;
  return device_label(device) + "_" + to_string(mode) + "_" + variant.name;
}

INSTANTIATE_TEST_SUITE_P(Devices, Chunked,
                         testing::Combine(testing::ValuesIn(test_devices()),
                                          testing::Values(PeerMode::kThreads, PeerMode::kProcesses),
                                          testing::ValuesIn(variants())),
                         chunked_test_name);

}  // namespace
}  // namespace leat::detail
