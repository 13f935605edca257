// Transport planned against a peer that writes into arrays and says epochs as it likes, as
// docs/transports/planned.md has it: an error of that channel, the same at every later call of
// either kind, and nothing that was not sent counts as arrived. planned_faults_test.cc has such a
// peer on real devices.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "leat/error.h"
#include "support/errors.h"
#include "support/planned_side.h"
#include "support/scripted_device.h"
#include "transport/parts/immediate.h"
#include "transport/planned/planned.h"

namespace leat::detail {
namespace {

constexpr std::size_t kHostilePlannedBytes = 64 * 1024;
constexpr std::uint64_t kPlannedReceives = 64;
constexpr std::uint32_t kPlannedMessages = 10;
constexpr std::size_t kEach = 16;
constexpr Context kOpen = 3;

class HostileToPlanned : public testing::Test {
 protected:
  explicit HostileToPlanned(const Limits& limits = Script{}.limits) {
    script_.limits = limits;
    RingOptions rings;
    rings.ring_bytes = rings.context_ring_bytes = 4096;
    rings.max_message_bytes = 4096;
    rings.depths.receive_requests = kPlannedReceives;
    transport_ =
        std::make_unique<PlannedTransport>(scripted_device(script_), scripted_queue_pair(script_),
                                           rings, PlannedOptions{kHostilePlannedBytes, ""});
    const auto setup = transport_->setup();
    std::memcpy(&planned_region_, setup.data() + kRingSetupBytes, sizeof planned_region_);
    transport_->start(setup);  // its peer says the same
    transport_->open(kOpen, {.base_bytes = 64, .message_bytes = kEach, .count = kPlannedMessages});
    EXPECT_TRUE(transport_->try_tell(kOpen));
  }

  // The open array has the numbers from 0 on.
  void arrives(std::uint32_t number, std::size_t bytes) {
    script_.arrivals.push_back({.kind = CompletionKind::kImmediate,
                                .immediate = encode(Immediate::of_number(number)),
                                .bytes = bytes});
  }
  void says(unsigned context, std::uint64_t word) const {
    std::memcpy(reinterpret_cast<std::byte*>(planned_region_) + kHostilePlannedBytes + 8 * context,
                &word, sizeof word);
  }
  void progress() {
    while (transport_->try_progress()) {
    }
  }
  // In the same words at every call, however it looks.
  void expect_refused(const std::function<void()>& call) {
    std::string words;
    for (int i = 0; i < 3; ++i) {
      const std::string text = error_of(ErrorCode::kProtocol, call);
      if (i == 0) words = text;
      EXPECT_EQ(text, words);
    }
    Delivery delivery;
    EXPECT_EQ(error_of(ErrorCode::kProtocol, [&] { transport_->try_receive(0, delivery); }), words);
  }
  void expect_refused() {
    expect_refused([&] { progress(); });
  }

  Script script_;
  std::unique_ptr<PlannedTransport> transport_;
  std::uint64_t planned_region_ = 0;
};

TEST_F(HostileToPlanned, NumberOfNobody) {
  arrives(MessageNumbers::kChunk, kEach);
  expect_refused();
}

TEST_F(HostileToPlanned, NumberOfAnArrayThatIsClosed) {
  transport_->cancel(kOpen);
  arrives(0, kEach);
  expect_refused();
}

TEST_F(HostileToPlanned, IndexBehindTheLast) {
  arrives(kPlannedMessages, kEach);
  expect_refused();
}

TEST_F(HostileToPlanned, LargestIndex) {
  arrives(0x7fff'ffff, kEach);
  expect_refused();
}

TEST_F(HostileToPlanned, MoreNeighboursThanThereAre) {
  arrives(5, 6 * kEach);
  expect_refused();
  EXPECT_EQ(transport_->arrays().missing(kOpen), kPlannedMessages);
}

TEST_F(HostileToPlanned, PartOfAMessage) {
  arrives(5, kEach + 1);
  expect_refused();
}

TEST_F(HostileToPlanned, NoBytes) {
  arrives(5, 0);
  expect_refused();
}

TEST_F(HostileToPlanned, MoreBytesThanNumbersHold) {
  arrives(5, SIZE_MAX / kEach * kEach);
  expect_refused();
}

TEST_F(HostileToPlanned, TheSameMessageTwice) {
  arrives(5, kEach);
  arrives(3, 3 * kEach);
  expect_refused();
  EXPECT_EQ(transport_->arrays().missing(kOpen), kPlannedMessages - 1);
}

TEST_F(HostileToPlanned, MoreThanWasToCome) {
  transport_->open(
      5, {.base_bytes = 4096, .message_bytes = kEach, .count = kPlannedMessages, .incoming = 0});
  arrives(MessageNumbers::kChunk, kEach);
  expect_refused();
}

TEST_F(HostileToPlanned, MessageBehindTheEnd) {
  script_.arrivals.push_back(
      {.kind = CompletionKind::kImmediate, .immediate = encode({0, kEndPlace})});
  arrives(0, kEach);
  expect_refused();
  EXPECT_EQ(transport_->arrays().missing(kOpen), kPlannedMessages);
}

TEST_F(HostileToPlanned, EpochThatIsNotReached) {
  says(kOpen, MessageArrays::word_of(2, 0));
  expect_refused([&] { (void)transport_->peer_is_open(kOpen); });
}

TEST_F(HostileToPlanned, NumbersThatAnArrayCannotHave) {
  says(kOpen, MessageArrays::word_of(1, MessageNumbers::kChunks));
  expect_refused([&] { (void)transport_->peer_is_open(kOpen); });
}

TEST_F(HostileToPlanned, LargestEpochToCome) {
  says(kOpen, MessageArrays::word_of(UINT64_MAX >> 30, 0));
  expect_refused([&] { (void)transport_->peer_is_open(kOpen); });
}

// Where nothing is staged, messages go straight into the peer's memory, which here is not there.
class HostileToPlannedInMemory : public HostileToPlanned {
 protected:
  HostileToPlannedInMemory()
      : HostileToPlanned({.max_inline_bytes = 1 << 20,
                          .max_send_requests = 64,
                          .max_receive_requests = 64,
                          .max_request_bytes = 1 << 20}) {}
};

// Refused at every call, not only at the first.
TEST_F(HostileToPlannedInMemory, OpenArrayInARegionThatCannotBeReached) {
  says(kOpen, MessageArrays::word_of(1, 0));
  expect_refused([&] { (void)transport_->peer_is_open(kOpen); });
  EXPECT_FALSE(transport_->arrays().peer_is_open(kOpen));
}

TEST_F(HostileToPlanned, DamagedEpoch) {
  says(kOpen, UINT64_MAX);
  expect_refused([&] { (void)transport_->peer_is_open(kOpen); });
}

TEST_F(HostileToPlanned, SetupsWithAnImpossibleRegion) {
  const auto whole = transport_->setup();
  const auto with = [&](std::size_t offset, std::uint64_t value) {
    auto setup = whole;
    std::memcpy(setup.data() + kRingSetupBytes + offset, &value, sizeof value);
    return setup;
  };
  expect_error(ErrorCode::kProtocol, [&] { transport_->start(with(0, UINT64_MAX - 7)); });
  expect_error(ErrorCode::kProtocol, [&] { transport_->start(with(0, planned_region_ + 4)); });
  expect_error(ErrorCode::kInvalidArgument,
               [&] { transport_->start(with(8, kHostilePlannedBytes * 2)); });
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
    expect_error(ErrorCode::kProtocol, [&] { transport_->start(std::span(whole).first(bytes)); });
}

}  // namespace
}  // namespace leat::detail
