// Connections on one host that count as leaving it.
#pragma once

#include "handshake/choice.h"

namespace leat::detail {

// While it lives, messages leave the host over every kind of device, if `all`. Two processes here
// would else use shared memory, which leat encrypts only on demand.
class LeavingHost {
 public:
  explicit LeavingHost(bool all = true) { count_all_as_leaving(all); }
  ~LeavingHost() { count_all_as_leaving(false); }
  LeavingHost(const LeavingHost&) = delete;
  LeavingHost& operator=(const LeavingHost&) = delete;
};

}  // namespace leat::detail
