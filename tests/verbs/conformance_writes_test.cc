// What queue pairs promise about requests that succeed, one test per sentence of verbs/device.h:
// writes and reads.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "support/devices.h"
#include "support/verbs_side.h"

namespace leat::detail {
namespace {

class VerbsWrites : public VerbsTest {};

TEST_P(VerbsWrites, WriteLandsWhereItIsAimedAndNowhereElse) {
  static constexpr std::size_t kBytes = 3 * 4096;
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(kBytes, kLocalOnly);
        fill_pattern(source.memory(), 1);
        const RemoteRegion target = side.exchange({});
        side.complete(write_request({source, 100, target, 4000, 300}, 7));
        side.complete(immediate_request(0));
        side.peer.hear("checked");
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(kBytes, kRemoteWrite, kFilling);
        side.post_receives(1);
        side.exchange(target.remote());
        side.receive_completion();
        std::vector<std::byte> expected(kBytes);
        fill_pattern(expected, 1);
        const auto memory = target.memory();
        EXPECT_TRUE(
            std::ranges::equal(memory.subspan(4000, 300), std::span(expected).subspan(100, 300)));
        expect_filled(memory.first(4000), kFilling);
        expect_filled(memory.subspan(4300), kFilling);
        side.peer.tell("checked");
      });
}

TEST_P(VerbsWrites, LargeWriteAndReadMoveEveryByte) {
  const auto size = [](const VerbsSide& side) {
    return std::min((std::size_t{16} << 20) + 13, side.device->limits().max_request_bytes);
  };
  run(
      [&](VerbsSide& side) {
        const std::size_t bytes = size(side);
        const MemoryRegion& source = side.allocate(bytes, kLocalOnly);
        fill_pattern(source.memory(), 1);
        const RemoteRegion target = side.exchange({});
        side.complete(write_request({source, 0, target, 0, bytes}));
        std::ranges::fill(source.memory(), std::byte{0});
        side.complete(read_request({source, 0, target, 0, bytes}));
        side.peer.barrier();
        expect_pattern(source.memory().first(bytes), 1);
        side.peer.barrier();
      },
      [&](VerbsSide& side) {
        const std::size_t bytes = size(side);
        const MemoryRegion& target = side.allocate(bytes, kRemoteReadWrite);
        side.exchange(target.remote());
        side.peer.barrier();
        expect_pattern(target.memory().first(bytes), 1);
        side.peer.barrier();
      });
}

TEST_P(VerbsWrites, PlainWriteGivesThePeerNoCompletion) {
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(4096, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        for (std::uint64_t i = 0; i < 10; ++i) {
          side.complete(write_request({source, 0, target, 0, std::size_t{8} << i}, i));
        }
        side.peer.barrier();
        side.peer.barrier();
        side.complete(immediate_request(77, 11));
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(8192, kRemoteWrite);
        side.post_receives(1);
        side.exchange(target.remote());
        side.peer.barrier();
        side.expect_no_receive_completion();
        side.peer.barrier();
        EXPECT_EQ(side.receive_completion().immediate, 77u);
      });
}

TEST_P(VerbsWrites, ReadReturnsBytesNoOlderThanItsPost) {
  const std::size_t count = scaled(5000);
  run(
      [&](VerbsSide& side) {
        const MemoryRegion& memory = side.allocate(4096, kLocalOnly);
        side.post_receives(64);
        const RemoteRegion counter = side.exchange({});
        std::uint64_t value = 0;
        for (std::uint64_t i = 1; i <= count; ++i) {
          ASSERT_EQ(side.receive_completion().immediate, i);
          side.post_receives(1);
          side.complete(read_request({memory, 0, counter, 0, sizeof(value)}));
          std::memcpy(&value, memory.memory().data(), sizeof(value));
          ASSERT_GE(value, i);
        }
      },
      [&](VerbsSide& side) {
        const MemoryRegion& memory = side.allocate(4096, kRemoteRead);
        auto& word = *reinterpret_cast<std::uint64_t*>(memory.memory().data());
        side.exchange(memory.remote());
        for (std::uint64_t i = 1; i <= count; ++i) {
          std::atomic_ref(word).store(i, std::memory_order_release);
          side.complete(immediate_request(static_cast<std::uint32_t>(i), i));
        }
      });
}

TEST_P(VerbsWrites, ReadSeesAnEarlierWriteOfTheSameQueuePair) {
  const std::size_t count = scaled(5000);
  run(
      [&](VerbsSide& side) {
        const MemoryRegion& memory = side.allocate(8192, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        for (std::uint64_t i = 0; i < count; ++i) {
          const std::size_t bytes = 8 + i % 500;
          fill_pattern(memory.memory().first(bytes), i);
          SendRequest requests[] = {write_request({memory, 0, target, 0, bytes}),
                                    read_request({memory, 4096, target, 0, bytes}, i)};
          requests[0].signaled = false;
          for (const SendRequest& request : requests) side.post(request);
          ASSERT_EQ(side.send_completion().id, i);
          ASSERT_EQ(pattern_mismatch(memory.memory().subspan(4096, bytes), i), bytes);
        }
        side.peer.barrier();
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(4096, kRemoteReadWrite);
        side.exchange(target.remote());
        side.peer.barrier();
      });
}

TEST_P(VerbsWrites, RequestsOfZeroBytesSucceed) {
  run(
      [](VerbsSide& side) {
        const MemoryRegion& memory = side.allocate(4096, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        side.complete(write_request({memory, 0, target, 0, 0}, 1));
        side.complete(read_request({memory, 0, target, 0, 0}, 2));
        side.complete(immediate_request(4, 4));
        SendRequest inlined = immediate_request(5, 5);
        inlined.inlined = true;
        side.complete(inlined);
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(4096, kRemoteReadWrite, kFilling);
        side.post_receives(2);
        side.exchange(target.remote());
        for (const std::uint32_t immediate : {4u, 5u}) {
          const Completion completion = side.receive_completion();
          EXPECT_EQ(completion.kind, CompletionKind::kImmediate);
          EXPECT_EQ(completion.immediate, immediate);
          EXPECT_EQ(completion.bytes, 0u);
        }
        expect_filled(target.memory(), kFilling);
      });
}

TEST_P(VerbsWrites, InlinedBytesAreTheCallersAgainOnReturn) {
  const std::size_t count = scaled(1000);
  run(
      [&](VerbsSide& side) {
        const std::size_t bytes =
            std::min<std::size_t>(side.device->limits().max_inline_bytes, 512);
        ASSERT_GE(bytes, 8u) << "an inline counter must fit";
        side.peer.tell_value(bytes);
        const RemoteRegion target = side.exchange({});
        std::vector<std::byte> source(bytes);
        for (std::size_t i = 0; i < count; ++i) {
          fill_pattern(source, i);
          SendRequest request = immediate_request(static_cast<std::uint32_t>(i), i);
          request.inlined = true;
          request.local = source.data();
          request.bytes = bytes;
          request.remote_address = target.address + i % 4 * bytes;
          request.remote_key = target.key;
          side.post(request);
          std::ranges::fill(source, kFilling);
          ASSERT_EQ(side.send_completion().status, CompletionStatus::kSuccess);
        }
      },
      [&](VerbsSide& side) {
        const auto bytes = side.peer.hear_value<std::size_t>();
        const MemoryRegion& target = side.allocate(4 * bytes, kRemoteWrite);
        side.post_receives(2);
        side.exchange(target.remote());
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(side.receive_completion().immediate, i);
          ASSERT_EQ(pattern_mismatch(target.memory().subspan(i % 4 * bytes, bytes), i), bytes);
          side.post_receives(1);
        }
      });
}

LEAT_INSTANTIATE_ON_DEVICES(VerbsWrites);

}  // namespace
}  // namespace leat::detail
