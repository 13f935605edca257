// RemoteMemory over real devices: TNIC's rem_write and rem_read. What an attacker can do is in
// transport/verified_memory_test.cc.
#include "leat/remote_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "support/channel_side.h"
#include "support/devices.h"
#include "support/errors.h"

namespace leat::detail {
namespace {

using trusted::RemoteMemory;
using trusted::Verdict;

class RemoteMemoryTest : public ChannelTest {
 protected:
  static constexpr trusted::RemoteMemoryOptions kOptions{.memory_bytes = 1 << 20,
                                                         .published_bytes = 8192};
};

std::vector<ChannelKind> memory_kinds() {
  std::vector<ChannelKind> kinds;
  for (const std::string& device : test_devices()) kinds.push_back({"attested+ring", device});
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Devices, RemoteMemoryTest,
                         testing::Combine(testing::ValuesIn(memory_kinds()),
                                          testing::Values(PeerMode::kThreads,
                                                          PeerMode::kProcesses)),
                         channel_test_name);

// Where the n-th write of a test goes, and what it brings.
struct Write {
  std::uint64_t offset;
  std::vector<std::byte> bytes;
};
std::vector<Write> some_writes() {
  std::vector<Write> writes;
  std::uint64_t seed = 0;
  for (const std::size_t bytes : {0UL, 1UL, 64UL, 5000UL, 600'000UL, 64UL}) {
    writes.push_back({(1 << 20) - bytes, std::vector<std::byte>(bytes)});
    for (std::byte& byte : writes.back().bytes) byte = static_cast<std::byte>(++seed * 7);
  }
  return writes;
}

TEST_P(RemoteMemoryTest, writes_reach_their_place_in_order_and_messages_go_beside_them) {
  run(
      [&](ChannelSide& side) {
        RemoteMemory memory(std::move(side.channel), kOptions);
        EXPECT_EQ(memory.peer_memory_bytes(), std::uint64_t{1} << 20);
        for (const Write& write : some_writes()) memory.write(write.offset, write.bytes);
        memory.channel().send("all written");
        memory.channel().shutdown();
        EXPECT_FALSE(memory.wait());
      },
      [&](ChannelSide& side) {
        RemoteMemory memory(std::move(side.channel), kOptions);
        std::vector<std::byte> expected(1 << 20);
        for (const Write& write : some_writes()) {
          const auto changed = memory.wait();
          ASSERT_TRUE(changed);
          EXPECT_EQ(changed->size(), write.bytes.size());
          std::ranges::copy(write.bytes, expected.begin() + static_cast<long>(write.offset));
          EXPECT_TRUE(std::ranges::equal(memory.memory(), expected));
        }
        EXPECT_EQ(memory.channel().receive().text(), "all written");
        EXPECT_FALSE(memory.poll());
        memory.channel().shutdown();
      });
}

TEST_P(RemoteMemoryTest, what_is_published_is_read_without_the_publisher) {
  const auto record = [](std::byte value) { return std::vector<std::byte>(3000, value); };
  run(
      [&](ChannelSide& side) {
        RemoteMemory memory(std::move(side.channel), kOptions);
        memory.publish(0, record(std::byte{1}));
        memory.channel().send(std::to_string(memory.publish(4096, record(std::byte{2}))));
        EXPECT_EQ(memory.channel().receive().text(), "read");
        memory.publish(0, record(std::byte{3}));
        memory.channel().send("published");
        EXPECT_EQ(memory.channel().receive().text(), "read");
      },
      [&](ChannelSide& side) {
        RemoteMemory memory(std::move(side.channel), kOptions);
        const std::uint64_t told = std::stoull(std::string(memory.channel().receive().text()));
        std::uint64_t floor = 0, second_floor = told;
        std::vector<std::byte> bytes(3000);
        EXPECT_EQ(memory.read(0, bytes, floor), Verdict::kOk);
        EXPECT_EQ(bytes, record(std::byte{1}));
        EXPECT_EQ(memory.read(4096, bytes, second_floor), Verdict::kOk);
        EXPECT_EQ(bytes, record(std::byte{2}));
        EXPECT_EQ(memory.read(0, bytes, second_floor), Verdict::kCounter) << "older than told";
        EXPECT_EQ(memory.read(64, std::span(bytes).first(64), floor), Verdict::kFormat);
        memory.channel().send("read");
        EXPECT_EQ(memory.channel().receive().text(), "published");
        EXPECT_EQ(memory.read(0, bytes, second_floor), Verdict::kOk);
        EXPECT_EQ(bytes, record(std::byte{3}));
        memory.channel().send("read");
        EXPECT_EQ(memory.channel().stats().refused_records, 0U);
      });
}

// Between processes only: what is read may change meanwhile, which threads would have to be
// synchronised for.
class RemoteMemoryRace : public RemoteMemoryTest {};
INSTANTIATE_TEST_SUITE_P(Devices, RemoteMemoryRace,
                         testing::Combine(testing::ValuesIn(memory_kinds()),
                                          testing::Values(PeerMode::kProcesses)),
                         channel_test_name);

TEST_P(RemoteMemoryRace, a_record_that_is_just_replaced_is_read_whole) {
  constexpr std::size_t kBytes = 1000;
  run(
      [&](ChannelSide& side) {
        RemoteMemory memory(std::move(side.channel), kOptions);
        unsigned char value = 0;
        memory.publish(0, std::vector<std::byte>(kBytes, std::byte{value}));
        memory.channel().send("published");
        do {
          memory.publish(0, std::vector<std::byte>(kBytes, std::byte{++value}));
        } while (!memory.channel().try_receive());
      },
      [&](ChannelSide& side) {
        RemoteMemory memory(std::move(side.channel), kOptions);
        EXPECT_EQ(memory.channel().receive().text(), "published");
        std::uint64_t floor = 0;
        std::vector<std::byte> bytes(kBytes);
        for (std::uint64_t i = 0; i < scaled(300); ++i) {
          const std::uint64_t before = floor;
          Verdict verdict = Verdict::kMac;  // stays that where the publisher is held up for long
          while (verdict == Verdict::kMac) verdict = memory.read(0, bytes, floor);
          ASSERT_EQ(verdict, Verdict::kOk);
          EXPECT_GE(floor, before);
          EXPECT_THAT(bytes, testing::Each(static_cast<std::byte>(floor)));
        }
        memory.channel().send("enough");
        EXPECT_FALSE(memory.channel().receive());
      });
}

TEST(RemoteMemoryOfOthers, channels_that_do_not_attest_are_refused) {
  run_pair(
      PeerMode::kThreads,
      [](Peer& peer) {
        Listener listener("127.0.0.1:0", channel_options({"ring", "shm"}));
        peer.tell(listener.address());
        Channel channel = listener.accept();
        EXPECT_FALSE(channel.receive());
      },
      [](Peer& peer) {
        Channel channel = Channel::connect(peer.hear(), channel_options({"ring", "shm"}));
        EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                             [&] { RemoteMemory memory(std::move(channel), {.memory_bytes = 1}); }),
                    testing::HasSubstr("attested+"));
      });
}

// Where no reads go writes do.
TEST(RemoteMemoryOfOthers, over_transports_without_reads_there_are_writes) {
  const ChannelKind kind{"attested+chunked", "shm"};
  run_pair(
      PeerMode::kThreads,
      [&](Peer& peer) {
        Listener listener("127.0.0.1:0", channel_options(kind));
        peer.tell(listener.address());
        RemoteMemory memory(listener.accept(), {.memory_bytes = 8});
        EXPECT_TRUE(memory.wait());
        EXPECT_EQ(memory.memory()[7], std::byte{'!'});
        memory.channel().shutdown();
      },
      [&](Peer& peer) {
        const std::string address = peer.hear();
        const std::string text = "!";
        RemoteMemory memory(Channel::connect(address, channel_options(kind)), {});
        memory.write(7, std::as_bytes(std::span(text)));
        EXPECT_FALSE(memory.wait());
        EXPECT_THAT(error_of(ErrorCode::kUnavailable,
                             [&] {
                               RemoteMemory second(std::move(memory.channel()),
                                                   {.published_bytes = 200});
                             }),
                    testing::HasSubstr("attested+ring"));
      });
}

}  // namespace
}  // namespace leat::detail
