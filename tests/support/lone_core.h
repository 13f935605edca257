// A channel's core over a transport of a test's choice, with a peer that is only a lifeline.
#pragma once

#include <memory>

#include "base/fd.h"
#include "base/settings.h"
#include "channel/channel_core.h"
#include "transport/transport.h"

namespace leat::detail {

struct LoneCore {
  static constexpr const char* kPeerAddress = "192.0.2.1:4711";

  // With `settings` but for the timeout, which is hang_limit().
  explicit LoneCore(std::unique_ptr<Transport> transport, Settings settings = {});

  Fd peer;  // closed: it is gone
  std::unique_ptr<ChannelCore> core;
};

}  // namespace leat::detail
