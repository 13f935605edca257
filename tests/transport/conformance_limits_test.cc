// What channels promise about max_message_bytes, on every transport: it holds for messages of any
// size, and either side's limit is both sides'.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "support/channel_side.h"

namespace leat::detail {
namespace {

class MessageLimit : public ChannelTest {
 protected:
  // With the limit of one side.
  void check(std::size_t most, const std::function<void(Options&)>& first_options,
             const std::function<void(Options&)>& second_options) const {
    SCOPED_TRACE(most);
    run(
        [most](ChannelSide& side) {
          expect_refusals(side.channel, most);
          send_all(side.channel, most);
          receive_all(side.channel, most);
        },
        [most](ChannelSide& side) {
          expect_refusals(side.channel, most);
          receive_all(side.channel, most);
          send_all(side.channel, most);
        },
        {.first_options = first_options, .second_options = second_options});
  }

 private:
  static void expect_refusals(Channel& channel, std::size_t most) {
    EXPECT_EQ(channel.max_message_bytes(), most);
    const std::vector<std::byte> message(most + 1);
    for (const unsigned context : {0U, 1U, 15U}) {
      EXPECT_LE(channel.max_in_place_bytes(context), most);
      expect_error(ErrorCode::kTooLarge, [&] { channel.send(message, context); });
      expect_error(ErrorCode::kTooLarge, [&] { (void)channel.try_send(message, context); });
      expect_error(ErrorCode::kTooLarge, [&] { (void)channel.reserve(most + 1, context); });
    }
  }
  static void send_all(Channel& channel, std::size_t most) {
    for (const unsigned context : {0U, 1U, 15U}) {
      send_pattern(channel, most, context, context);
      const std::size_t in_place = channel.max_in_place_bytes(context);
      fill_pattern(channel.reserve(in_place, context), 7);
      channel.commit(in_place);
    }
    channel.flush();
  }
  static void receive_all(Channel& channel, std::size_t most) {
    for (const unsigned context : {0U, 1U, 15U}) {
      expect_message(channel.receive(context), most, context);
      expect_message(channel.receive(context), channel.max_in_place_bytes(context), 7);
    }
  }
};

TEST_P(MessageLimit, OfEitherSideHoldsOnBoth) {
  // Below what goes in place, and above it.
  for (const std::size_t most : {1, 10, 47, 100, 1000, 2'000'000}) {
    const auto limit = [&](Options& options) { options.max_message_bytes = most; };
    check(most, limit, {});
    check(most, {}, limit);
  }
}

LEAT_INSTANTIATE_CHANNEL_SUITE(MessageLimit);
LEAT_INSTANTIATE_UNBUNDLED_SUITE(MessageLimit);

}  // namespace
}  // namespace leat::detail
