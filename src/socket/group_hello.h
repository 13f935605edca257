// What master and worker of a group say to each other before all else: one message each way, of
// fixed size. Every byte is checked. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "leat/error.h"

namespace leat::detail {

inline constexpr std::uint32_t kGroupVersion = 1;
inline constexpr std::uint32_t kAnyRank = 0xffffffff;
inline constexpr std::size_t kGroupHelloBytes = 32;
inline constexpr std::size_t kGroupAnswerBytes = 256;

// The worker's.
struct GroupHello {
  std::uint32_t rank = kAnyRank;  // wanted
  std::uint32_t size = 0;         // expected; 0: any
};

// The master's: a place in the group, or why there is none.
struct GroupAnswer {
  bool refused = false;
  ErrorCode code = ErrorCode::kInvalidArgument;  // if refused
  std::string text;                              // if refused; cut to what fits
  std::uint32_t rank = 0;                        // else
  std::uint32_t size = 0;
};

std::vector<std::byte> encode(const GroupHello& hello);
std::vector<std::byte> encode(const GroupAnswer& answer);
// Both throw kProtocol for what is none, and kVersion for another version's.
GroupHello decode_group_hello(std::span<const std::byte> message);
GroupAnswer decode_group_answer(std::span<const std::byte> message);

}  // namespace leat::detail
