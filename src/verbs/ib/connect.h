// Connects the ib device by rdma_cm, which knows the route: GID, MTU, service level and RoCE
// version are right without flags.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "verbs/device.h"
#include "verbs/ib/queue_pair.h"

namespace leat::detail {

// As Device::offer and Device::connect. `domain` outlives what they return.
std::unique_ptr<Offer> ib_offer(const IbDomain& domain, const QueueDepths& depths,
                                const std::string& local_address);
std::unique_ptr<QueuePair> ib_connect(const IbDomain& domain, std::span<const std::byte> blob,
                                      const QueueDepths& depths, Deadline deadline);

}  // namespace leat::detail
