// If memory runs out for a message, this and every later receive fail: what came after it is
// neither handed out in its place nor taken for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <string>
#include <vector>

#include "support/errors.h"
#include "support/transport_side.h"
#include "transport/table.h"

namespace {

// While `scarce`, arrays as large as this cannot be allocated in this thread.
constexpr std::size_t kLarge = std::size_t{1} << 20;
thread_local bool scarce = false;

}  // namespace

void* operator new[](std::size_t bytes) {
  if (scarce && bytes >= kLarge) throw std::bad_alloc();
  return ::operator new(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t& or_null) noexcept {
  return scarce && bytes >= kLarge ? nullptr : ::operator new(bytes, or_null);
}
void operator delete[](void* memory) noexcept { ::operator delete(memory); }
void operator delete[](void* memory, std::size_t) noexcept { ::operator delete(memory); }

namespace leat::detail {
namespace {

// Parameter: transport.
class OutOfMemory : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Shm, OutOfMemory,
                         testing::Values("ring", "batched", "chunked", "attested+ring",
                                         "sealed+ring"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::ranges::replace(name, '+', '_');
                           return name;
                         });

TEST_P(OutOfMemory, loses_no_order) {
  TransportSetup setup;
  setup.transport = GetParam();
  constexpr std::size_t kMost = std::size_t{4} << 20;
  setup.settings = {.max_message_bytes = kMost,
                    .slot_bytes = 4096,
                    .slot_count = 64,
                    .chunked_chunk_bytes = 65536,
                    .chunked_region_bytes = 262144,
                    .chunked_region_count = 4};
  // In pieces; but a decorator gets it in place, and copies it.
  const std::vector<std::byte> large(is_decorated(setup.transport) ? 600'000 : 3'000'000);
  run_transports(
      PeerMode::kThreads, setup,
      [&](TransportSide& side) {
        // As much of it as there is room for.
        if (sent(side.transport->try_send(large, 0))) side.send(std::span(large).first(20), 0);
        side.peer.tell("sent");
        side.peer.hear("done");
      },
      [&](TransportSide& side) {
        side.peer.hear("sent");
        Delivery delivery;
        scarce = true;
        EXPECT_THAT(error_of(ErrorCode::kResource, [&] { side.receive(0, delivery); }),
                    testing::HasSubstr("out of memory"));
        scarce = false;
        for (int i = 0; i < 3; ++i)
          EXPECT_FALSE(error_of(ErrorCode::kResource, [&] { side.receive(0, delivery); }).empty());
        side.peer.tell("done");
      });
}

// All of the large message is in slots, and behind it are small ones that share a slot.
TEST(OutOfMemoryOfBatched, small_messages_do_not_take_its_place) {
  TransportSetup setup;
  setup.transport = "batched";
  setup.settings = {
      .max_message_bytes = std::size_t{4} << 20, .slot_bytes = 4096, .slot_count = 1024};
  const std::vector<std::byte> large(3'000'000);
  run_transports(
      PeerMode::kThreads, setup,
      [&](TransportSide& side) {
        side.send(large, 0);
        for (int i = 0; i < 3; ++i) side.send(std::span(large).first(20), 0);
        side.peer.tell("sent");
        side.peer.hear("done");
      },
      [&](TransportSide& side) {
        side.peer.hear("sent");
        Delivery delivery;
        scarce = true;
        expect_error(ErrorCode::kResource, [&] { side.receive(0, delivery); });
        scarce = false;
        for (int i = 0; i < 5000; ++i)
          expect_error(ErrorCode::kResource, [&] { side.receive(0, delivery); });
        side.peer.tell("done");
      });
}

}  // namespace
}  // namespace leat::detail
