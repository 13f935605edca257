// Small messages of transport batched, which are not posted before their slot is full: the receiver
// finds them all the same, whatever the sender does next. This tests the way by requests, as
// devices with faults share no memory; the conformance tests cover shared memory.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "support/devices.h"
#include "support/pattern.h"
#include "support/scale.h"
#include "support/transport_side.h"

namespace leat::detail {
namespace {

// Parameters: device, threads or processes.
class BatchedBundles : public testing::TestWithParam<std::tuple<std::string, PeerMode>> {
 protected:
  void run(const std::function<void(TransportSide&)>& first,
           const std::function<void(TransportSide&)>& second) const {
    TransportSetup setup;
    setup.transport = "batched";
    setup.device = std::get<0>(GetParam());
    setup.settings.max_message_bytes = std::size_t{1} << 20;
    const auto without_lifeline = [](const std::function<void(TransportSide&)>& body) {
      return [&body](TransportSide& side) {
        side.watches_lifeline = false;  // the two meet on it instead
        body(side);
      };
    };
    run_transports(std::get<1>(GetParam()), setup, without_lifeline(first),
                   without_lifeline(second));
  }

  static void send(TransportSide& side, std::uint64_t number, std::size_t bytes, Context context) {
    std::vector<std::byte> message(bytes);
    fill_pattern(message, number);
    side.send(message, context);
  }
  static void receive(TransportSide& side, std::uint64_t number, std::size_t bytes,
                      Context context) {
    Delivery delivery;
    ASSERT_TRUE(side.receive(context, delivery));
    const auto got = bytes_of(delivery);
    EXPECT_EQ(got.size(), bytes) << "message " << number;
    EXPECT_EQ(pattern_mismatch(got, number), got.size()) << "message " << number;
    if (delivery.must_release) side.transport->release(delivery);
  }
};

TEST_P(BatchedBundles, ComeThoughTheirSenderDoesNothingMore) {
  run(
      [&](TransportSide& side) {
        std::uint64_t number = 0;
        for (const Context context : {0U, 3U, 0U})
          for (const std::size_t bytes : {0, 5, 64, 200}) send(side, number++, bytes, context);
        side.peer.hear("all came");  // no call of the transport until then
        send(side, number, 64, 0);
        side.peer.hear("and that");
      },
      [&](TransportSide& side) {
        std::uint64_t number = 0;
        for (const Context context : {0U, 3U, 0U})
          for (const std::size_t bytes : {0, 5, 64, 200}) receive(side, number++, bytes, context);
        side.peer.tell("all came");
        receive(side, number, 64, 0);
        side.peer.tell("and that");
      });
}

TEST_P(BatchedBundles, AnySizesInAnyContextsWithPausesAreInOrder) {
  const std::uint64_t count = scaled(20'000);
  const auto context_of = [](std::uint64_t n) { return static_cast<Context>(n / 37 % 3); };
  const auto size_of = [](std::uint64_t n) {
    std::mt19937_64 random(n);
    return static_cast<std::size_t>(random() % (n % 101 == 0 ? 100'000 : 300));
  };
  run(
      [&](TransportSide& side) {
        for (std::uint64_t n = 0; n < count; ++n) {
          if (n % 1000 == 999) side.peer.barrier();  // until it has all so far
          send(side, n, size_of(n), context_of(n));
        }
        side.end();
        side.peer.barrier();
      },
      [&](TransportSide& side) {
        for (std::uint64_t n = 0; n < count; ++n) {
          if (n % 1000 == 999) side.peer.barrier();
          ASSERT_NO_FATAL_FAILURE(receive(side, n, size_of(n), context_of(n)));
        }
        Delivery delivery;
        EXPECT_FALSE(side.receive(0, delivery));
        side.peer.barrier();
      });
}

TEST_P(BatchedBundles, OneThatIsHeldKeepsItsSlot) {
  constexpr std::uint64_t kMessages = 30'000;  // many times what all slots hold
  run(
      [&](TransportSide& side) {
        for (std::uint64_t n = 0; n < kMessages; ++n) send(side, n, 100, 0);
        side.end();
        side.peer.barrier();
      },
      [&](TransportSide& side) {
        std::vector<Delivery> held;
        for (std::uint64_t n = 0; n < kMessages; ++n) {
          Delivery delivery;
          ASSERT_TRUE(side.receive(0, delivery));
          ASSERT_EQ(pattern_mismatch(bytes_of(delivery), n), 100u) << n;
          if (n % 500 == 7) {
            held.push_back(std::move(delivery));
          } else if (delivery.must_release) {
            side.transport->release(delivery);
          }
        }
        for (std::size_t i = 0; i < held.size(); ++i) {
          EXPECT_EQ(pattern_mismatch(bytes_of(held[i]), i * 500 + 7), 100u) << i;
          if (held[i].must_release) side.transport->release(held[i]);
        }
        side.peer.barrier();
      });
}

LEAT_INSTANTIATE_ON_DEVICES(BatchedBundles);

}  // namespace
}  // namespace leat::detail
