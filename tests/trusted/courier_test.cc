// Messages between nodes over connections that are lost: each once, in order.
#include "trusted/parts/courier.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "support/scale.h"

namespace leat::trusted {
namespace {

using detail::Courier;
using detail::Resumption;
using detail::View;

constexpr std::size_t kBytes = 1 << 20;

std::vector<std::byte> message(std::uint32_t number) {
  std::vector<std::byte> bytes(sizeof number);
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}
std::uint32_t number_in(View bytes) {
  std::uint32_t number = 0;
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

// A connection begins: `first` speaks, the other answers.
void connect(Courier& first, Courier& other) {
  ASSERT_TRUE(other.resume(*detail::read_resumption(write_resumption(first.resumption()))));
  ASSERT_TRUE(first.resume(*detail::read_resumption(write_resumption(other.resumption()))));
}

TEST(Courier, messages_arrive_once_and_in_order_however_often_connections_are_lost) {
  std::mt19937 random(1);
  for (std::size_t round = 0; round < leat::detail::scaled(300); ++round) {
    Courier a(1, kBytes), b(2, kBytes);
    std::uint32_t given = 0, expected = 0;
    for (int connection = 0; connection < 20; ++connection) {
      connect(connection % 2 == 0 ? a : b, connection % 2 == 0 ? b : a);
      for (std::size_t i = random() % 200; i > 0; --i) {
        if (random() % 2 == 0) {
          ASSERT_TRUE(a.keep(message(given++)));
        }
        if (random() % 2 == 0) continue;
        const auto next = a.next();
        if (!next) continue;
        ASSERT_EQ(number_in(*next), expected++);
        if (const auto count = b.count_received(next->size()))
          if (random() % 2 == 0) a.on_received(*count);
      }
      // Sent, and lost with the connection.
      for (std::size_t i = random() % 50; i > 0 && a.next(); --i) {
      }
    }
    connect(a, b);
    while (const auto next = a.next()) {
      ASSERT_EQ(number_in(*next), expected++);
      (void)b.count_received(next->size());
    }
    ASSERT_EQ(expected, given);
  }
}

TEST(Courier, a_node_that_was_started_again_gets_what_is_kept_and_gives_what_it_has) {
  Courier a(1, kBytes);
  for (std::uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(a.keep(message(i)));
  Courier b(2, kBytes);
  connect(a, b);
  for (std::uint32_t i = 0; i < 3; ++i) ASSERT_EQ(number_in(*a.next()), i);
  for (int i = 0; i < 3; ++i) (void)b.count_received(4);
  connect(b, a);  // says that it has them: they go
  EXPECT_FALSE(a.next());
  ASSERT_TRUE(a.keep(message(3)));
  Courier again(3, kBytes);
  ASSERT_TRUE(again.keep(message(7)));
  connect(again, a);
  EXPECT_EQ(number_in(*a.next()), 3U);
  EXPECT_EQ(number_in(*again.next()), 7U);
}

TEST(Courier, what_is_kept_is_bounded_and_the_peer_hears_of_the_gap) {
  Courier a(1, 100), b(2, kBytes);
  connect(a, b);
  std::uint32_t given = 0;
  while (a.keep(message(given))) ++given;
  EXPECT_EQ(given, 25U);
  connect(a, b);
  ASSERT_TRUE(a.keep(message(1000)));
  EXPECT_EQ(number_in(*a.next()), 1000U);
  EXPECT_EQ(b.resumption().received, 26U);
}

TEST(Courier, senseless_words_are_refused) {
  Courier a(1, kBytes);
  EXPECT_FALSE(a.resume({.life = 0}));
  EXPECT_FALSE(a.resume({.life = 2, .peers_life = 1, .received = 1}));
  EXPECT_TRUE(a.resume({.life = 2, .peers_life = 9, .received = 5}));
  a.on_received(~std::uint64_t{0});
  ASSERT_TRUE(a.keep(message(1)));
  EXPECT_EQ(number_in(*a.next()), 1U);
  EXPECT_FALSE(detail::read_resumption(write_received(1)));
  EXPECT_FALSE(detail::read_received(detail::write_resumption({})));
  EXPECT_FALSE(detail::read_received({}));
}

}  // namespace
}  // namespace leat::trusted
