// Remembers for each context the message that a caller of try_send() has begun but not finished:
// the peer has pieces of it, and the next bytes of that context must be the rest of it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "leat/channel.h"

namespace leat::detail {

// Plain value. Threads: that of the send side.
class UnfinishedSends {
 public:
  bool has(unsigned context) const { return (contexts_ >> context & 1) != 0; }
  void forget(unsigned context) { contexts_ &= ~(1U << context); }
  void remember(std::span<const std::byte> message, unsigned context) {
    contexts_ |= 1U << context;
    begun_[context] = {message.size(), sample_of(message)};
  }
  // Whether this is the same message, as far as its size and a sample of its bytes tell.
  bool continues(std::span<const std::byte> message, unsigned context) const {
    const Begun& begun = begun_[context];
    return message.size() == begun.bytes && sample_of(message) == begun.sample;
  }

 private:
  struct Begun {
    std::size_t bytes = 0;
    std::uint64_t sample = 0;
  };

  // A sample, because reading all of a large message at each try would cost more than sending it.
  // Different messages nearly always differ at their beginning.
  static std::uint64_t sample_of(std::span<const std::byte> message) {
    constexpr std::size_t kBegin = 256;
    constexpr std::size_t kWords = 16;  // spread over the rest
    constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
    std::uint64_t sum = message.size();
    const auto add = [&](std::size_t at) {
      std::uint64_t word = 0;
      std::memcpy(&word, message.data() + at, std::min(sizeof word, message.size() - at));
      sum = (sum ^ word) * kOdd;
      sum ^= sum >> 29;
    };
    for (std::size_t at = 0; at < std::min(kBegin, message.size()); at += sizeof sum) add(at);
    for (std::size_t i = 1; i <= kWords && message.size() > kBegin; ++i)
      add((message.size() - sizeof sum) / kWords * i);
    return sum;
  }

  std::uint32_t contexts_ = 0;
  std::array<Begun, kContexts> begun_;
};

}  // namespace leat::detail
