#include "base/large_copy.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace leat::detail {
namespace {

// Taken in turn, so that what disturbs one way disturbs the other. Of each way the fastest counts.
constexpr std::uint32_t kSamplesOfTrial = 8;
// A trial costs a few copies the slower way, so trials become rare; but cores do change places.
constexpr std::uint32_t kFirstInterval = 64;
constexpr std::uint32_t kLongestInterval = 4096;
// How much faster storing must be past the caches: the reader then finds nothing in its own, so
// where both store at the same speed, through them is better.
constexpr double kWorthIt = 1.2;

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
  } else if (until_trial_ == 0) {
    try_both(to, from, bytes);
  } else {
    --until_trial_;
    if (past_)
      copy_past(to, from, bytes);
    else
      std::memcpy(to, from, bytes);
  }
}

void LargeCopy::try_both(std::byte* to, const std::byte* from, std::size_t bytes) {
  const bool past = samples_ % 2 != 0;
  const auto start = Clock::now();
  if (past)
    copy_past(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
  const std::chrono::duration<double, std::nano> time = Clock::now() - start;
  best_[past] = std::max(best_[past], static_cast<double>(bytes) / std::max(time.count(), 1.0));
  if (++samples_ < kSamplesOfTrial) return;
  const bool wins = best_[1] > best_[0] * kWorthIt;
  interval_ = wins == past_ ? std::clamp(interval_ * 2, kFirstInterval, kLongestInterval)
                            : kFirstInterval;
  past_ = wins;
  until_trial_ = interval_;
  samples_ = 0;
  best_[0] = best_[1] = 0;
}

}  // namespace leat::detail
