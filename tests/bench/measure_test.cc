// What leat-bench computes, without measuring.
#include "measure.h"

#include <gtest/gtest.h>

#include <numeric>

#include "pattern.h"

namespace leat::bench {
namespace {

TEST(Distribution, IsThatOfPerftest) {
  std::vector<double> values(1000);
  std::iota(values.rbegin(), values.rend(), 1.0);  // 1000, 999, ... 1
  const Latency::Distribution spread = distribution_of(values);
  EXPECT_EQ(spread.min_us, 1);
  EXPECT_EQ(spread.max_us, 1000);
  EXPECT_EQ(spread.typical_us, 501);
  EXPECT_EQ(spread.p90_us, 901);
  EXPECT_EQ(spread.p99_us, 991);
  EXPECT_EQ(spread.p999_us, 1000);
  EXPECT_NEAR(spread.stdev_us, 288.67, 0.01);
}

TEST(Distribution, OfOneValueIsThatValue) {
  const Latency::Distribution spread = distribution_of({3.0});
  EXPECT_EQ(spread.min_us, 3);
  EXPECT_EQ(spread.typical_us, 3);
  EXPECT_EQ(spread.p999_us, 3);
  EXPECT_EQ(spread.stdev_us, 0);
}

TEST(Measuring, EveryByteIsRead) {
  std::vector<std::byte> bytes(21, std::byte{1});
  EXPECT_EQ(read_every_byte({}), 0);
  EXPECT_EQ(read_every_byte(bytes), 2 * 0x0101010101010101 + 5);
  for (std::byte& byte : bytes) {
    byte = std::byte{3};
    EXPECT_NE(read_every_byte(bytes), 2 * 0x0101010101010101 + 5);
    byte = std::byte{1};
  }
}

TEST(Measuring, WarmUpIsDoneButNotCounted) {
  std::uint64_t calls = 0;
  const RunLength length{.iterations = 10, .seconds = {}, .warmup = 7};
  const Latency latency = measure_latency(
      8, length, TickClock(), [](double) {}, [&calls] { ++calls; });
  EXPECT_EQ(latency.iterations, 10);
  EXPECT_EQ(calls, 7 + 10 + 10);  // once for the mean, once with timestamps
}

TEST(Measuring, BandwidthSendsExactlyTheIterations) {
  for (const std::uint64_t iterations : {1, 9, 10, 11, 1234}) {
    std::uint64_t sent = 0;
    const RunLength length{.iterations = iterations, .seconds = {}, .warmup = 0};
    const Bandwidth bandwidth = measure_bandwidth(
        8, length, TickClock(), [](double) {}, [&sent](std::uint64_t count) { sent += count; },
        [] {});
    EXPECT_EQ(sent, iterations);
    EXPECT_EQ(bandwidth.iterations, iterations);
  }
}

class Pattern : public testing::TestWithParam<std::size_t> {};

TEST_P(Pattern, OfTheSameMessageIsAccepted) {
  std::vector<std::byte> message(GetParam());
  fill_pattern(message, 1, 2);
  EXPECT_NO_THROW(check_pattern(message, 1, 2));
}

TEST_P(Pattern, FindsAnyByteThatIsWrong) {
  std::vector<std::byte> message(GetParam());
  fill_pattern(message, 1, 2);
  for (std::byte& byte : message) {
    byte ^= std::byte{1};
    EXPECT_THROW(check_pattern(message, 1, 2), std::runtime_error);
    byte ^= std::byte{1};
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Pattern, testing::Values(1, 7, 8, 9, 64, 1000));

TEST(PatternOfAnotherMessage, IsWrong) {
  std::vector<std::byte> message(64);
  fill_pattern(message, 1, 2);
  EXPECT_THROW(check_pattern(message, 1, 3), std::runtime_error);
  EXPECT_THROW(check_pattern(message, 2, 2), std::runtime_error);
}

}  // namespace
}  // namespace leat::bench
