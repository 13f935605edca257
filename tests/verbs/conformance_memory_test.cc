// What queue pairs promise about requests that succeed, one test per sentence of verbs/device.h:
// regions, and memory of the peer.
#include <gtest/gtest.h>

#include <vector>

#include "support/devices.h"
#include "support/verbs_side.h"

namespace leat::detail {
namespace {

class VerbsMemory : public VerbsTest {};

TEST_P(VerbsMemory, AllocatedMemoryIsZeroedPageAlignedAndLargeEnough) {
  run_both([](VerbsSide& side) {
    for (const std::size_t bytes : {1u, 4095u, 4096u, 4097u, 1u << 20}) {
      const auto region = side.device->allocate(bytes, kRemoteReadWrite);
      EXPECT_GE(region->memory().size(), bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region->memory().data()) % 4096, 0u);
      expect_filled(region->memory(), std::byte{0});
      EXPECT_EQ(region->remote().address, reinterpret_cast<std::uint64_t>(region->memory().data()));
      EXPECT_GE(region->remote().bytes, bytes);
    }
  });
}

TEST_P(VerbsMemory, WriteOfPeerMemoryFilledInPlaceArrives) {
  static constexpr std::size_t kBytes = 8192;
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(kBytes, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        std::byte* place = side.queue_pair->peer_memory({target.address + 100, 5000, target.key});
        SendRequest request = write_request({source, 0, target, 100, 5000}, 1);
        if (place != nullptr) {
          request.local = place;
          request.local_key = 0;
        }
        fill_pattern({static_cast<std::byte*>(request.local), 5000}, 9);
        request.opcode = Opcode::kWriteWithImmediate;
        side.complete(request);
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(kBytes, kRemoteWrite, kFilling);
        side.post_receives(1);
        side.exchange(target.remote());
        EXPECT_EQ(side.receive_completion().bytes, 5000u);
        expect_filled(target.memory().first(100), kFilling);
        expect_pattern(target.memory().subspan(100, 5000), 9);
        expect_filled(target.memory().subspan(5100), kFilling);
      });
}

TEST_P(VerbsMemory, PeerMemoryIsNullWhereAccessIsNotAllowed) {
  run(
      [](VerbsSide& side) {
        const RemoteRegion writable = side.exchange({});
        const RemoteRegion readable = side.exchange({});
        QueuePair& queue_pair = *side.queue_pair;
        EXPECT_EQ(queue_pair.peer_memory(readable), nullptr);
        EXPECT_EQ(queue_pair.peer_memory({writable.address, writable.bytes + 1, writable.key}),
                  nullptr);
        EXPECT_EQ(queue_pair.peer_memory({writable.address - 1, 8, writable.key}), nullptr);
        EXPECT_EQ(queue_pair.peer_memory({writable.address, 8, writable.key ^ 0x55}), nullptr);
        EXPECT_EQ(queue_pair.peer_memory({~std::uint64_t{0} - 7, 64, writable.key}), nullptr);
        side.peer.barrier();
      },
      [](VerbsSide& side) {
        const MemoryRegion& writable = side.allocate(4096, kRemoteWrite);
        const MemoryRegion& readable = side.allocate(4096, kRemoteRead);
        side.exchange(writable.remote());
        side.exchange(readable.remote());
        side.peer.barrier();
      });
}

TEST_P(VerbsMemory, RegionsMadeAfterConnectingAreUsable) {
  static constexpr std::size_t kCount = 20;
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(4096, kLocalOnly);
        for (std::size_t i = 0; i < kCount; ++i) {
          fill_pattern(source.memory(), i);
          const RemoteRegion target = side.exchange({});
          side.complete(write_request({source, 0, target, 0, 4096}, i));
          side.complete(immediate_request(0));
        }
      },
      [](VerbsSide& side) {
        for (std::size_t i = 0; i < kCount; ++i) {
          const MemoryRegion& target = side.allocate(4096, kRemoteWrite);
          side.post_receives(1);
          side.exchange(target.remote());
          side.receive_completion();
          expect_pattern(target.memory().first(4096), i);
        }
      });
}

TEST_P(VerbsMemory, RegionsMayComeAndGoWhileThePeerIsIdle) {
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(4096, kLocalOnly);
        fill_pattern(source.memory(), 1);
        const RemoteRegion target = side.exchange({});
        side.complete(write_request({source, 0, target, 0, 4096}));
        side.complete(immediate_request(0));
      },
      [](VerbsSide& side) {
        for (int i = 0; i < 100; ++i) side.device->allocate(4096, kRemoteWrite);
        const MemoryRegion& target = side.allocate(4096, kRemoteWrite);
        side.post_receives(1);
        side.exchange(target.remote());
        side.receive_completion();
        expect_pattern(target.memory().first(4096), 1);
      });
}

LEAT_INSTANTIATE_ON_DEVICES(VerbsMemory);

}  // namespace
}  // namespace leat::detail
