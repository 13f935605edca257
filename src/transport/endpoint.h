// What a transport is made of: one side's end of a connection.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "base/settings.h"
#include "net/stream.h"
#include "transport/transport.h"
#include "verbs/device.h"

namespace leat::detail {

struct Endpoint {
  Stream* stream = nullptr;        // the lifeline; outlives the transport
  std::unique_ptr<Device> device;  // null where a transport needs no RDMA, as is the next
  std::unique_ptr<QueuePair> queue_pair;
  QueueDepths depths;   // with which the queue pair was made
  bool active = false;  // this side connected, the peer listened
  // The hello and the answer to it, as they crossed: equal on both sides.
  std::vector<std::byte> greetings = {};
};

// Allocates and posts receives: the peer may send once it has setup(). May throw; the device is
// then given up.
using MakeTransport = std::unique_ptr<Transport>(Endpoint end, const Settings& settings);

// A decorator is made over what makes the transport underneath it, which may be a decorator's, too.
using MakeInner = std::function<MakeTransport>;
using MakeDecorator = std::unique_ptr<Transport>(const MakeInner& inner, Endpoint end,
                                                 const Settings& settings);

}  // namespace leat::detail
