// What a Message holds. Programs use Message (leat/channel.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "leat/cxx20.h"

namespace leat::detail {

// A message handed out by Transport::try_receive, which fills it where the caller's Message is. Its
// bytes are where the device put them, in `small` (a copy of a few dozen bytes), or in `heap`,
// which `data` then points to.
struct Delivery {
  static constexpr std::size_t kSmallBytes = 48;

  const std::byte* data = nullptr;  // null: the bytes are in `small`
  std::size_t bytes = 0;
  std::uint64_t ticket = 0;  // the transport's own, for release
  std::unique_ptr<std::byte[]> heap;
  unsigned context = 0;
  bool must_release = false;  // else nothing of the transport is held
  alignas(8) std::array<std::byte, kSmallBytes> small;

  const std::byte* begin() const noexcept { return data != nullptr ? data : small.data(); }

  // Takes a copy of kSmallBytes from there, however long the message is. By three moves: compilers
  // make a string instruction of one copy, which takes longer to begin than all of them.
  void take_small(const std::byte* from) noexcept {
    for (std::size_t at = 0; at < kSmallBytes; at += sizeof(Part)) {
      Part part;
      std::memcpy(&part, from + at, sizeof part);
      std::memcpy(small.data() + at, &part, sizeof part);
    }
    data = nullptr;
  }

 private:
  using Part = std::array<std::uint64_t, 2>;
};

}  // namespace leat::detail
