// A sender of transport batched that sleeps without room goes on once there is some. Where memory
// is shared, it is woken for that and need not look now and then; in this test it never looks.
#include <gtest/gtest.h>
#include <poll.h>

#include <random>
#include <thread>
#include <vector>

#include "support/pattern.h"
#include "support/transport_side.h"
#include "support/verbs_side.h"
#include "transport/batched/batched.h"

namespace leat::detail {
namespace {

constexpr std::size_t kRoomSlotBytes = 1024;
constexpr std::size_t kRoomMostBytes = 100 * kRoomSlotBytes;  // in pieces

std::size_t bytes_of_message(std::uint64_t number) {
  std::mt19937_64 random(number);
  return random() % (number % 20 == 7  ? kRoomMostBytes
                     : number % 3 == 0 ? 4 * kRoomSlotBytes
                                       : 200);
}
Context room_context_of(std::uint64_t number) { return number / 40 % 2 == 0 ? 0 : 9; }

class BatchedRoom : public VerbsTest {
 protected:
  static std::unique_ptr<Transport> transport_of(VerbsSide& side) {
    SlotOptions slots;
    slots.slot_bytes = kRoomSlotBytes;
    slots.slot_count = 512;  // and 64 of each other context
    slots.max_message_bytes = kRoomMostBytes;
    auto transport = make_batched(std::move(side.device), std::move(side.queue_pair), slots);
    const std::vector<std::byte> setup = transport->setup();
    side.peer.tell({reinterpret_cast<const char*>(setup.data()), setup.size()});
    const std::string theirs = side.peer.hear();
    transport->start(std::as_bytes(std::span(theirs)));
    return transport;
  }

  // Returns when there may be room. False: no event said so.
  bool sleep_for_room(const Transport& transport) const {
    const bool is_woken = device_name() == "shm";
    const auto limit = is_woken ? std::chrono::milliseconds(hang_limit()).count() : 1;
    pollfd event{transport.event_fd(Side::kSend), POLLIN, 0};
    return poll(&event, 1, static_cast<int>(limit)) == 1 || !is_woken;
  }
};

LEAT_INSTANTIATE_ON_DEVICES(BatchedRoom);

TEST_P(BatchedRoom, WakesASenderThatSleeps) {
  const std::uint64_t count = scaled(20'000);
  run(
      [&](VerbsSide& side) {
        const auto transport = transport_of(side);
        std::vector<std::byte> message;
        std::uint64_t sleeps = 0;
        for (std::uint64_t number = 0; number < count; ++number) {
          message.resize(bytes_of_message(number));
          fill_pattern(message, number);
          const auto goes = [&] {
            return sent(transport->try_send(message, room_context_of(number)));
          };
          while (!goes()) {
            transport->arm(Side::kSend);
            if (goes()) break;
            if (sleeps++ == 0) side.peer.tell("no room");
            ASSERT_TRUE(sleep_for_room(*transport)) << "message " << number;
          }
        }
        const Deadline deadline = hang_deadline();
        while (!transport->try_flush()) ASSERT_FALSE(passed(deadline));
        side.peer.barrier();
      },
      [&](VerbsSide& side) {
        const auto transport = transport_of(side);
        std::mt19937 random(1);
        std::vector<Delivery> held;
        const auto release = [&] {
          for (Delivery& each : held) transport->release(each);
          held.clear();
        };
        side.peer.hear("no room");  // so that the sender sleeps at least once, however slow it is
        const Deadline deadline = hang_deadline();
        for (std::uint64_t number = 0; number < count;) {
          ASSERT_FALSE(passed(deadline)) << "message " << number;
          Delivery delivery;
          if (transport->try_receive(room_context_of(number), delivery) ==
              ReceiveResult::kNothing) {
            release();
            std::this_thread::yield();
            continue;
          }
          ASSERT_EQ(delivery.bytes, bytes_of_message(number));
          ASSERT_EQ(pattern_mismatch(bytes_of(delivery), number), delivery.bytes);
          ++number;
          if (delivery.must_release) held.push_back(std::move(delivery));
          if (random() % 8 == 0) release();
          // The sender fills all slots meanwhile, and sleeps.
          if (random() % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        release();
        side.peer.barrier();
      });
}

}  // namespace
}  // namespace leat::detail
