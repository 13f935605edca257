#include "base/large_copy.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace leat::detail {
namespace {

// A trial is so many runs of so many bytes, by the two ways in turn, so that what disturbs one
// disturbs the other. Shorter runs would be hidden by what the core buffers.
constexpr std::uint32_t kRunsOfTrial = 4;
constexpr std::uint64_t kRunBytes = std::uint64_t{512} << 10;
// A trial costs two runs the slower way, so trials become rare; but cores do change places.
constexpr std::uint64_t kFirstInterval = std::uint64_t{8} << 20;
constexpr std::uint64_t kLongestInterval = std::uint64_t{256} << 20;
// How much faster storing must be past the caches, on the average of the last trials: the
// reader then finds nothing in its own cache, which costs it more than the difference where the two
// share one.
constexpr double kWorthIt = 1.75;
constexpr double kWeightOfTrial = 0.25;
constexpr double kMostGain = 4;  // of one trial, so that none outweighs all others

#if defined(__x86_64__)

constexpr bool kCanGoPast = true;

// Also works, more slowly, where `from` is not aligned.
void copy_past(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  const std::size_t head =
      std::min<std::size_t>(-reinterpret_cast<std::uintptr_t>(to) % kLine, bytes);
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from);
    auto* target = reinterpret_cast<__m128i*>(to);
    const __m128i words[4] = {_mm_loadu_si128(source), _mm_loadu_si128(source + 1),
                              _mm_loadu_si128(source + 2), _mm_loadu_si128(source + 3)};
    // All of a line at once, or it goes to memory in parts.
    for (int i = 0; i < 4; ++i) _mm_stream_si128(target + i, words[i]);
  }
  std::memcpy(to, from, bytes);
  _mm_sfence();  // such stores are not ordered before a release store by itself
}

#else

constexpr bool kCanGoPast = false;

void copy_past(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

#endif

}  // namespace

void LargeCopy::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (!kCanGoPast || bytes < kLeastBytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  const bool on_trial = run_ < kRunsOfTrial;
  const bool past = on_trial ? run_ % 2 != 0 : past_;
  const auto start = on_trial ? Clock::now() : Clock::time_point();
  if (past)
    copy_past(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
  done_ += bytes;
  if (on_trial) run_time_ += Clock::now() - start;
  if (done_ >= (on_trial ? kRunBytes : interval_)) next_run();
}

void LargeCopy::next_run() {
  if (run_ < kRunsOfTrial) {
    double& best = best_[run_ % 2];
    best = std::max(best, static_cast<double>(done_) / std::max(run_time_.count(), 1.0));
    if (++run_ == kRunsOfTrial) {
      const double gain = std::min(best_[1] / best_[0], kMostGain);
      gain_ = gain_ == 0 ? gain : gain_ + (gain - gain_) * kWeightOfTrial;
      const bool wins = gain_ > kWorthIt;
      interval_ = wins == past_ ? std::clamp(interval_ * 2, kFirstInterval, kLongestInterval)
                                : kFirstInterval;
      past_ = wins;
    }
  } else {
    run_ = 0;
    best_[0] = best_[1] = 0;
  }
  done_ = 0;
  run_time_ = {};
}

}  // namespace leat::detail
