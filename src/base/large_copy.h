// Copies of many bytes into memory that another processor core reads next.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace leat::detail {

// There are two ways, and which is faster depends on where the other core is. Through the caches:
// best if the two share one, as what is written stays there until it is read. Past the caches: best
// if they do not, as every line would have to be fetched from the other core's cache before it
// could be overwritten, which can take ten times as long. No interface of the system says reliably
// where the cores are, in a virtual machine least of all, and threads move. So this tries both ways
// now and then, and keeps to the faster; the more often they compare the same, the rarer it tries.
//
// What was copied is ordered before later stores as by memcpy. One thread at a time.
class LargeCopy {
 public:
  // From so many bytes on there is a choice: smaller copies are through the caches.
  static constexpr std::size_t kLeastBytes = std::size_t{16} << 10;

  void copy(std::byte* to, const std::byte* from, std::size_t bytes);

 private:
  using Clock = std::chrono::steady_clock;

  void next_run();

  bool past_ = false;           // the way that won
  double gain_ = 0;             // of going past the caches, by the last trials; 0: none yet
  std::uint64_t interval_ = 0;  // bytes from one trial to the next
  std::uint32_t run_ = 0;       // of the trial under way; after the last one: until the next trial
  std::uint64_t done_ = 0;      // bytes of this run
  std::chrono::duration<double, std::nano> run_time_{};
  double best_[2] = {};  // bytes per nanosecond in this trial: through, past
};

}  // namespace leat::detail
