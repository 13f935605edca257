// What queue pairs promise about requests that succeed, one test per sentence of verbs/device.h:
// immediates and receives.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/devices.h"
#include "support/pattern.h"
#include "support/verbs_side.h"
#include "verbs/arrivals.h"

namespace leat::detail {
namespace {

class VerbsReceives : public VerbsTest {};

TEST_P(VerbsReceives, ImmediateConsumesOnePostedReceiveEach) {
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(4096, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        for (std::uint32_t i = 0; i < 3; ++i) {
          SendRequest request = write_request({source, 0, target, 0, i * 100}, i);
          request.opcode = Opcode::kWriteWithImmediate;
          request.immediate = i;
          side.complete(request);
        }
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(4096, kRemoteWrite);
        side.post_receives(5);
        side.exchange(target.remote());
        for (std::uint32_t i = 0; i < 3; ++i) {
          const Completion completion = side.receive_completion();
          EXPECT_EQ(completion.status, CompletionStatus::kSuccess);
          EXPECT_EQ(completion.kind, CompletionKind::kImmediate);
          EXPECT_EQ(completion.immediate, i);
          EXPECT_EQ(completion.bytes, i * 100);
        }
        side.expect_no_receive_completion();
      });
}

TEST_P(VerbsReceives, ImmediateArrivesAsItIs) {
  const std::vector<std::uint32_t> values{0, 1, 0x01020304, 0x7fffffff, 0x80000000, 0xffffffff};
  run(
      [&](VerbsSide& side) {
        for (const std::uint32_t value : values) side.complete(immediate_request(value));
      },
      [&](VerbsSide& side) {
        side.post_receives(values.size());
        for (const std::uint32_t value : values) {
          EXPECT_EQ(side.receive_completion().immediate, value);
        }
      });
}

// Where arrivals are shared memory, either side may go by their ends or by requests, in any turn.
TEST_P(VerbsReceives, ArrivalsAndRequestsMayAlternate) {
  static constexpr std::uint32_t kCount = 300;
  const auto bytes_of = [](std::uint32_t i) -> std::size_t { return i % 80; };
  const auto shortly = [](const VerbsSide& side, std::uint32_t turn) {
    return turn != 0 && side.queue_pair->arrivals() != nullptr;
  };
  run(
      [&](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(4096, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        for (std::uint32_t i = 0; i < kCount; ++i) {
          const std::size_t at = i % 32 * 128;
          const std::vector<std::byte> message(bytes_of(i), static_cast<std::byte>(i));
          std::copy(message.begin(), message.end(), source.memory().begin());
          if (shortly(side, i / 3 % 2)) {
            Arrivals& arrivals = *side.queue_pair->arrivals();
            std::byte* memory = side.queue_pair->peer_memory(target);
            ASSERT_NE(memory, nullptr);
            while (!arrivals.sender.has_receive()) ASSERT_FALSE(arrivals.ended());
            copy_bytes(memory + at, message.data(), message.size());
            arrivals.sender.publish(message.data(), message.size(), i);
            arrivals.sender.announce();
          } else {
            SendRequest request = write_request({source, 0, target, at, message.size()}, i);
            request.opcode = Opcode::kWriteWithImmediate;
            request.immediate = i;
            side.complete(request);
          }
        }
      },
      [&](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(4096, kRemoteWrite);
        side.post_receives(20);
        side.exchange(target.remote());
        for (std::uint32_t i = 0; i < kCount; ++i) {
          Completion completion;
          if (shortly(side, i / 5 % 2)) {
            Arrivals& arrivals = *side.queue_pair->arrivals();
            while (!arrivals.receiver.peek(completion)) ASSERT_FALSE(arrivals.ended());
            arrivals.receiver.take();
          } else {
            completion = side.receive_completion();
          }
          ASSERT_EQ(completion.immediate, i);
          ASSERT_EQ(completion.bytes, bytes_of(i));
          expect_filled(target.memory().subspan(i % 32 * 128, bytes_of(i)),
                        static_cast<std::byte>(i));
          if (completion.payload != nullptr)
            expect_filled({completion.payload, completion.bytes}, static_cast<std::byte>(i));
          side.post_receives(1);
        }
      });
}

// Whether the first of these requests is accepted is the device's choice; that it does not complete
// before there is a receive, and arrives then, is not.
TEST_P(VerbsReceives, WithoutAReceiveTheSenderWaitsAndNothingIsLost) {
  static constexpr std::uint32_t kCount = 20;
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(4096, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        std::vector<SendRequest> requests;
        for (std::uint32_t i = 0; i < kCount; ++i) {
          requests.push_back(write_request({source, 0, target, 0, i % 2 == 0 ? 0 : i}, i));
          requests.back().opcode = Opcode::kWriteWithImmediate;
          requests.back().immediate = i;
        }
        std::size_t accepted = side.queue_pair->post_send(requests);
        side.expect_no_send_completion();
        side.peer.barrier();
        for (; accepted < kCount; ++accepted) side.post(requests[accepted]);
        for (std::uint32_t i = 0; i < kCount; ++i) {
          const Completion completion = side.send_completion();
          EXPECT_EQ(completion.status, CompletionStatus::kSuccess);
          EXPECT_EQ(completion.id, i);
        }
        EXPECT_GT(side.queue_pair->rnr_retries(), 0u);
      },
      [](VerbsSide& side) {
        side.exchange(side.allocate(4096, kRemoteWrite).remote());
        side.peer.barrier();
        for (std::uint32_t i = 0; i < kCount; ++i) {
          side.expect_no_receive_completion();
          side.post_receives(1);
          const Completion completion = side.receive_completion();
          EXPECT_EQ(completion.kind, CompletionKind::kImmediate);
          EXPECT_EQ(completion.immediate, i);
          EXPECT_EQ(completion.bytes, i % 2 == 0 ? 0 : i);
        }
      });
}

TEST_P(VerbsReceives, PayloadOfACompletionIsWhatIsInMemory) {
  static constexpr std::size_t kMax = 200;
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(4096, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        for (std::size_t bytes = 0; bytes <= kMax; ++bytes) {
          fill_pattern(source.memory().first(bytes), bytes);
          SendRequest request = write_request({source, 0, target, 64, bytes}, bytes);
          request.opcode = Opcode::kWriteWithImmediate;
          request.inlined = bytes % 2 == 1 && bytes <= side.device->limits().max_inline_bytes;
          side.complete(request);
          side.peer.hear("checked");
        }
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(4096, kRemoteWrite);
        side.post_receives(kMax + 1);
        side.exchange(target.remote());
        for (std::size_t bytes = 0; bytes <= kMax; ++bytes) {
          const Completion completion = side.receive_completion();
          ASSERT_EQ(completion.bytes, bytes);
          expect_pattern(target.memory().subspan(64, bytes), bytes);
          if (completion.payload != nullptr) expect_pattern({completion.payload, bytes}, bytes);
          side.peer.tell("checked");
        }
      });
}

LEAT_INSTANTIATE_ON_DEVICES(VerbsReceives);

}  // namespace
}  // namespace leat::detail
