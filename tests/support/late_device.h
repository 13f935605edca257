// A device around another, which must run requests as they are posted (shm), that does what the
// contract of src/verbs/device.h allows and no such device does: see late_order.h. A thread of each
// queue pair goes on with what was posted, so that nobody need call for that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "verbs/device.h"

namespace leat::detail {

struct LateProfile {
  std::uint64_t seed = 1;
  // As small devices have them; never more than the device around which this is.
  std::size_t max_inline_bytes = 64;
  std::size_t max_send_requests = 256;
  std::size_t max_receive_requests = 4096;
  bool immediates = true;  // false: as iWARP
  // Writes may complete before their bytes are visible. A process that is killed takes those bytes
  // with it, as no RDMA card does.
  bool completes_early = true;
};

std::unique_ptr<Device> make_late_device(std::unique_ptr<Device> device,
                                         const LateProfile& profile);

}  // namespace leat::detail
