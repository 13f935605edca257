// The first messages between the master and a worker of a group: one each way, of fixed size. Every
// byte is checked. Pure.
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

// From the worker.
struct GroupHello {
  std::uint32_t rank = kAnyRank;  // the rank it wants
  std::uint32_t size = 0;         // the group size it expects; 0: any
};

// From the master: the worker's place in the group, or why it gets none.
struct GroupAnswer {
  bool refused = false;
  ErrorCode code = ErrorCode::kInvalidArgument;  // if refused
  std::string text;                              // if refused; cut to what fits
  std::uint32_t rank = 0;                        // if not refused
  std::uint32_t size = 0;
};

std::vector<std::byte> encode(const GroupHello& hello);
std::vector<std::byte> encode(const GroupAnswer& answer);
// Both throw kProtocol for bytes that are not such a message, and kVersion for one of another
// version.
GroupHello decode_group_hello(std::span<const std::byte> message);
GroupAnswer decode_group_answer(std::span<const std::byte> message);

}  // namespace leat::detail
