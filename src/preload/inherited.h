// What a program inherited of ours from the one that executed it; inheritance.h is the other side.
#pragma once

#include <cstddef>
#include <cstdint>

#include "preload/end_state.h"

namespace leat::preload {

// The variable by which a program hears of it: a list of these. The same name may stand several
// times in an environment, as the kernel bounds the length of each.
inline constexpr char kInheritedVariable[] = "LEAT_PRELOAD_INHERITED=";
inline constexpr std::size_t kMostInheritedText = 96;
inline constexpr std::size_t kMostVariable = 100'000;

struct Inherited {
  char kind = 0;             // c connection, l listener, e the state of ends, s set of epoll
  std::uint64_t cookie = 0;  // of a socket; of a set what all its numbers have in common
  int hidden = -1;           // memory or meeting place
  unsigned detail = 0;       // side, code or the number of the set
  unsigned owner = 0;
  unsigned port = 0;
  unsigned in_sight = 0;  // the hidden descriptor's number is among the program's own
};
// Writes into kMostInheritedText bytes, and returns how many it took.
std::size_t write_inherited(const Inherited& one, char* text) noexcept;

// Sets what a descriptor stands for that came from another program, or in a message; it owns the
// hidden descriptor from then on. False: that was closed.
bool take_over_connection(int fd, int hidden, unsigned side, const EndHold& end) noexcept;
bool take_over_listener(int fd, int hidden, unsigned code, unsigned owner, unsigned port) noexcept;

// Finds what was inherited. Call once, at the start of a program.
void inherit() noexcept;

}  // namespace leat::preload
