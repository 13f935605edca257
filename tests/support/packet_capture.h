// What crosses a network device, as the kernel passes it on.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "base/fd.h"

namespace leat::detail {

// Captures both directions from its construction on, in the kernel: no thread has to keep up.
// Needs root.
class PacketCapture {
 public:
  explicit PacketCapture(const std::string& network_device);

  // Calls `look` for each Ethernet frame that was captured until now and not looked at yet.
  // `leaving`: this host sent it through the device; else it came in there. Throws
  // std::runtime_error if a frame is missing or not whole.
  using Look = std::function<void(std::span<const std::byte> frame, bool leaving)>;
  void look_through(const Look& look);

 private:
  Fd socket_;
};

// Bytes that a frame carries for a program: of a TCP segment over IPv4, or of a RoCE v2 packet over
// IPv4 what is between its base transport header and its checksum. 0 for every other frame.
std::size_t payload_bytes(std::span<const std::byte> frame);

}  // namespace leat::detail
