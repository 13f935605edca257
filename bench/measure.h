// How latency and bandwidth are measured, whatever carries the bytes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tick_clock.h"

namespace leat::bench {

// How long one size is measured: for a number of iterations, or for a time.
struct RunLength {
  std::uint64_t iterations = 1000;
  std::optional<double> seconds;
  // Not counted, before. No value: for 100 ms, so that cores are awake and memory was touched once.
  std::optional<std::uint64_t> warmup;
};

// Half round trips. With a time limit only the mean is known, as with perftest.
struct Latency {
  std::size_t bytes = 0;
  std::uint64_t iterations = 0;
  double average_us = 0;  // total time through iterations
  struct Distribution {
    double min_us, max_us, typical_us, stdev_us, p90_us, p99_us, p999_us;
  };
  std::optional<Distribution> distribution;
};

struct Bandwidth {
  std::size_t bytes = 0;
  std::uint64_t iterations = 0;
  double seconds = 0;
  double peak_bytes_per_second = 0;  // of the fastest tenth; 0 with a time limit, as with perftest
  double average_bytes_per_second() const {
    return static_cast<double>(bytes) * messages_per_second();
  }
  double messages_per_second() const { return static_cast<double>(iterations) / seconds; }
};

// Told the fraction that is done, now and then.
using Progress = std::function<void(double)>;

// Reads every byte once, as a receiver does that uses what came, and returns a sum of them.
std::uint64_t read_every_byte(std::span<const std::byte> bytes);

// `values` is not empty.
double median_of(std::vector<double> values);

// The statistics of perftest: ascending half round trips; typical is the median.
Latency::Distribution distribution_of(std::vector<double> half_round_trips_us);

// Runs `work(count)`, which does `count` iterations, until `seconds` have passed; returns how many.
template <typename Work>
std::uint64_t repeat_for(double seconds, const Progress& progress, Work&& work) {
  using Steady = std::chrono::steady_clock;
  const auto start = Steady::now();
  std::uint64_t done = 0;
  // A batch of about a millisecond, so that looking at the time costs nothing.
  std::uint64_t batch = 1;
  for (;;) {
    const auto batch_start = Steady::now();
    work(batch);
    done += batch;
    const auto now = Steady::now();
    const double elapsed = std::chrono::duration<double>(now - start).count();
    if (elapsed >= seconds) return done;
    if (now - batch_start < std::chrono::milliseconds(1)) batch *= 2;
    progress(elapsed / seconds);
  }
}

template <typename Work>
void warm_up(const RunLength& length, Work&& work) {
  constexpr double kDefaultSeconds = 0.1;
  if (length.warmup) {
    work(*length.warmup);
  } else {
    repeat_for(
        kDefaultSeconds, [](double) {}, work);
  }
}

// Calls `round_trip()`. A timestamp is taken in each iteration, as perftest does; the mean comes
// from a second run of as many iterations without timestamps, so that they cannot distort it.
template <typename RoundTrip>
Latency measure_latency(std::size_t bytes, const RunLength& length, const TickClock& clock,
                        const Progress& progress, RoundTrip&& round_trip) {
  const auto repeat = [&round_trip](std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) round_trip();
  };
  Latency latency;
  latency.bytes = bytes;
  latency.iterations = length.iterations;
  std::vector<std::uint64_t> stamps;
  if (!length.seconds) stamps.resize(length.iterations + 1);
  warm_up(length, repeat);

  const std::uint64_t start = clock.now();
  if (length.seconds) {
    latency.iterations = repeat_for(*length.seconds, progress, repeat);
  } else {
    repeat(length.iterations);
  }
  const std::uint64_t end = clock.now();
  latency.average_us =
      clock.microseconds(end - start) / 2 / static_cast<double>(latency.iterations);
  if (length.seconds) return latency;

  stamps[0] = clock.now();
  for (std::uint64_t i = 1; i <= length.iterations; ++i) {
    round_trip();
    stamps[i] = clock.now();
  }
  std::vector<double> half_round_trips_us(length.iterations);
  for (std::uint64_t i = 0; i < length.iterations; ++i) {
    half_round_trips_us[i] = clock.microseconds(stamps[i + 1] - stamps[i]) / 2;
  }
  latency.distribution = distribution_of(std::move(half_round_trips_us));
  return latency;
}

// `send(count)` sends so many messages, `finish()` returns once the receiver has confirmed all.
template <typename Send, typename Finish>
Bandwidth measure_bandwidth(std::size_t bytes, const RunLength& length, const TickClock& clock,
                            const Progress& progress, Send&& send, Finish&& finish) {
  warm_up(length, send);
  finish();

  Bandwidth bandwidth;
  bandwidth.bytes = bytes;
  const std::uint64_t start = clock.now();
  if (length.seconds) {
    bandwidth.iterations = repeat_for(*length.seconds, progress, send);
  } else {
    constexpr std::uint64_t kParts = 10;
    for (std::uint64_t part = 0; part < kParts; ++part) {
      const std::uint64_t count =
          length.iterations * (part + 1) / kParts - length.iterations * part / kParts;
      const std::uint64_t part_start = clock.now();
      send(count);
      const double seconds = clock.microseconds(clock.now() - part_start) * 1e-6;
      const double rate = static_cast<double>(bytes * count) / seconds;
      if (count > 0 && rate > bandwidth.peak_bytes_per_second) {
        bandwidth.peak_bytes_per_second = rate;
      }
    }
    bandwidth.iterations = length.iterations;
  }
  finish();
  bandwidth.seconds = clock.microseconds(clock.now() - start) * 1e-6;
  return bandwidth;
}

}  // namespace leat::bench
