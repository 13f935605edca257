#include "measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace leat::bench {

std::uint64_t read_every_byte(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  for (; bytes.size() >= sizeof sum; bytes = bytes.subspan(sizeof sum)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    sum += word;
  }
  for (const std::byte last : bytes) sum += std::to_integer<std::uint64_t>(last);
  // So that no read can be left out.
  asm volatile("" : : "r"(sum) : "memory");
  return sum;
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Latency::Distribution distribution_of(std::vector<double> half_round_trips_us) {
  std::vector<double>& values = half_round_trips_us;
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += value;
  const double average = sum / count;
  double squares = 0;
  for (const double value : values) squares += (value - average) * (value - average);
  const auto at_rank = [&](double rank) {
    const auto index = static_cast<std::size_t>(std::ceil(count * rank));
    return values[std::min(index, values.size() - 1)];
  };
  return {.min_us = values.front(),
          .max_us = values.back(),
          .typical_us = values[values.size() / 2],
          .stdev_us = std::sqrt(squares / count),
          .p90_us = at_rank(0.9),
          .p99_us = at_rank(0.99),
          .p999_us = at_rank(0.999)};
}

}  // namespace leat::bench
