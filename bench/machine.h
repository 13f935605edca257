// The machine that a benchmark runs on, and the cores it runs on there.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace leat::bench {

struct Machine {
  std::string cpu;
  long cores = 0;
  std::string kernel;
};
Machine this_machine();

// How many cores this process may run on.
std::size_t usable_cores();

// The cores of the two sides of a benchmark: [0] measures, [1] is its peer. Those that the user
// named, or two that share no core (hyper-threads) where this process may use two; else no value.
using CorePair = std::array<int, 2>;
std::optional<CorePair> choose_cores(const std::vector<int>& wanted);

// For people: which, and how near they are, which decides much and on virtual machines changes; or
// why not pinned. Measures for milliseconds.
std::string describe_cores(const std::optional<CorePair>& cores);

// Ties the calling thread to one core. Throws std::runtime_error with the reason.
void pin_to_core(int core);

}  // namespace leat::bench
