// Transport confirm-each against a peer that announces what it likes, as docs/wire_format.md has
// it: an error of that channel, and nothing that was not sent is handed out.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "leat/error.h"
#include "support/errors.h"
#include "support/scripted_device.h"
#include "transport/confirm_each/confirm_each.h"

namespace leat::detail {
namespace {

constexpr std::size_t kConfirmedSlotBytes = 256;
constexpr unsigned kConfirmedSlots = 16;

enum What : std::uint32_t { kMessage, kLargeStart, kEnd, kGivenBack };

class HostileToConfirmEach : public testing::Test {
 protected:
  HostileToConfirmEach() { start(1 << 20); }

  void start(std::size_t max_message_bytes) {
    script_.limits.max_receive_requests = 4096;
    SlotOptions slots;
    slots.slot_bytes = kConfirmedSlotBytes;
    slots.slot_count = kConfirmedSlots;
    slots.max_message_bytes = max_message_bytes;
    slots.depths.receive_requests = 4096;
    transport_ = make_confirm_each(scripted_device(script_), scripted_queue_pair(script_), slots);
    transport_->start(transport_->setup());  // its peer says the same
  }

  void arrives(What what, unsigned slot, std::uint32_t number, std::size_t bytes = 0) {
    script_.arrivals.push_back({.kind = CompletionKind::kImmediate,
                                .immediate = std::uint32_t{what} << 30 | slot << 16 | number,
                                .bytes = bytes});
  }
  ReceiveResult receive(Context context = 0) {
    Delivery delivery;
    const ReceiveResult result = transport_->try_receive(context, delivery);
    if (result == ReceiveResult::kMessage && delivery.must_release) transport_->release(delivery);
    return result;
  }
  // Now and at every later call; so many messages come before.
  void expect_refused(int messages = 0) {
    for (int i = 0; i < messages; ++i) ASSERT_EQ(receive(), ReceiveResult::kMessage) << i;
    for (int i = 0; i < 3; ++i) expect_error(ErrorCode::kProtocol, [&] { receive(); });
  }
  // Sends until there is no room; how many messages.
  unsigned fill_up() {
    const std::array<std::byte, 100> message{};
    unsigned count = 0;
    while (sent(transport_->try_send(message, 0))) ++count;
    return count;
  }

  Script script_;
  std::unique_ptr<Transport> transport_;
};

TEST_F(HostileToConfirmEach, MessageOutOfItsTurn) {
  arrives(kMessage, 0, 1, 10);
  expect_refused();
}

TEST_F(HostileToConfirmEach, TheSameMessageTwice) {
  arrives(kMessage, 0, 0, 10);
  arrives(kMessage, 0, 0, 10);
  expect_refused();
}

TEST_F(HostileToConfirmEach, SlotThatThereIsNot) {
  arrives(kMessage, kConfirmedSlots + 15 * kWordSlots, 0, 10);
  expect_refused();
}

TEST_F(HostileToConfirmEach, LengthBeyondTheSlots) {
  arrives(kMessage, 0, 0, 1 << 20);
  expect_refused();
}

TEST_F(HostileToConfirmEach, LengthAboveTheLimit) {
  for (const std::size_t most : {10, 100}) {
    start(most);
    arrives(kMessage, 0, 0, most + 1);
    expect_refused();
  }
}

TEST_F(HostileToConfirmEach, RunBeyondTheLastSlot) {
  arrives(kMessage, kConfirmedSlots - 1, 0, 2 * kConfirmedSlotBytes);
  expect_refused();
}

TEST_F(HostileToConfirmEach, MoreMessagesThanSlots) {
  for (std::uint32_t i = 0; i <= kConfirmedSlots; ++i) arrives(kMessage, 0, i, 10);
  expect_refused();
}

TEST_F(HostileToConfirmEach, MessageBehindTheEnd) {
  arrives(kMessage, 0, 0, 10);
  arrives(kEnd, 0, 1);
  arrives(kMessage, 1, 2, 10);
  expect_refused();
}

TEST_F(HostileToConfirmEach, OddAnnouncementOfALargeMessage) {
  arrives(kLargeStart, 0, 0, 4);
  expect_refused();
}

TEST_F(HostileToConfirmEach, SizeOfALargeMessageThatIsNone) {
  arrives(kLargeStart, 0, 0, 8);  // its bytes, zeros, take back what has not begun
  expect_refused();
}

TEST_F(HostileToConfirmEach, NoImmediateAtAll) {
  script_.arrivals.push_back({.kind = CompletionKind::kStray, .bytes = 10});
  expect_refused();
}

TEST_F(HostileToConfirmEach, SlotGivenBackThatWasNeverFilled) {
  EXPECT_EQ(fill_up(), kConfirmedSlots);
  arrives(kGivenBack, kConfirmedSlots + 3, 0);
  for (int i = 0; i < 3; ++i) expect_error(ErrorCode::kProtocol, [&] { fill_up(); });
}

TEST_F(HostileToConfirmEach, SlotGivenBackTwice) {
  EXPECT_EQ(fill_up(), kConfirmedSlots);
  arrives(kGivenBack, 2, 0);
  EXPECT_EQ(fill_up(), 1U);
  arrives(kGivenBack, 2, 1);
  arrives(kGivenBack, 2, 2);
  expect_error(ErrorCode::kProtocol, [&] { fill_up(); });
}

TEST_F(HostileToConfirmEach, SlotGivenBackOutOfItsTurn) {
  EXPECT_EQ(fill_up(), kConfirmedSlots);
  arrives(kGivenBack, 2, 7);
  expect_error(ErrorCode::kProtocol, [&] { fill_up(); });
}

}  // namespace
}  // namespace leat::detail
