// Counts how often the peers of a port were not ready to receive.
#pragma once

#include <cstdint>
#include <string>

namespace leat::detail {

// Reads the port's own counter of "receiver not ready" answers. No verb reports them for one queue
// pair, so this is the sum over all connections of the port, including those of other processes.
// Any thread.
class IbRnrCounter {
 public:
  // Counts from construction on. For a device without such a counter the count is always 0.
  IbRnrCounter(const std::string& verbs_name, unsigned port);

  std::uint64_t get() const noexcept;

 private:
  std::string path_;  // empty: the device does not count
  std::uint64_t before_ = 0;
};

}  // namespace leat::detail
