// One-sided reads beside a transport's messages, over its queue pair.
#pragma once

#include <cstddef>
#include <memory>

#include "verbs/device.h"

namespace leat::detail {

// Send side. No call blocks. Each may throw what the transport's sends throw; a read that the
// peer's device refuses ends the connection (kPeerDied).
class RemoteReads {
 public:
  // Memory of this connection's device, to be read by the peer or to read into. It must not outlive
  // the transport. Throws kResource.
  virtual std::unique_ptr<MemoryRegion> allocate(std::size_t bytes, unsigned access) = 0;
  virtual std::size_t max_read_bytes() const = 0;
  // Begins to read all of `from` to the beginning of `to`, which must stay until the read is over.
  // False: an earlier one is not over, or there is no room in the send queue.
  virtual bool try_read(const RemoteRegion& from, const MemoryRegion& to) = 0;
  // True once no read is under way: its bytes are here.
  virtual bool try_finish_read() = 0;

 protected:
  ~RemoteReads() = default;
};

}  // namespace leat::detail
