// Copies of many bytes into memory that another processor core reads next.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace leat::detail {

// There are two ways, and the faster one depends on where the other core is. Copying through the
// caches is best if the two cores share one, because the bytes stay there until they are read.
// Copying past the caches is best if they do not, because every line would have to be fetched from
// the other core's cache before it could be overwritten, which can take ten times as long. No
// interface of the system reports reliably where the cores are, least of all in a virtual machine,
// and threads move. So this class tries both ways from time to time and keeps to the faster; the
// more often the result is the same, the less often it tries.
//
// As with memcpy, the copied bytes are ordered before later stores. One thread at a time.
class LargeCopy {
 public:
  // Smaller copies always go through the caches.
  static constexpr std::size_t kLeastBytes = std::size_t{16} << 10;

  void copy(std::byte* to, const std::byte* from, std::size_t bytes);

 private:
  using Clock = std::chrono::steady_clock;

  void next_run();

  bool past_ = false;           // the way that won
  double gain_ = 0;             // of going past the caches, in the last trials; 0: none yet
  std::uint64_t interval_ = 0;  // bytes from one trial to the next
  std::uint32_t run_ = 0;       // of the current trial; after its last run: until the next trial
  std::uint64_t done_ = 0;      // bytes of this run
  std::chrono::duration<double, std::nano> run_time_{};
  double best_[2] = {};  // bytes per nanosecond in this trial: through, past the caches
};

}  // namespace leat::detail
