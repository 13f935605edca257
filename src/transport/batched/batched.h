// The batched transport (HiPower §3): messages are confirmed, and slots given back, by bitmaps that
// each side reads of the other, many at a time. While messages flow nothing is ever announced to
// the receiver: no immediate data, no sends, no posted receives.
//
// There are two transports of that name, and the device decides which one serves a connection.
// Where both sides share memory (Limits), stores fill the slot and flip the bit, and loads read the
// bitmaps: by_memory.h. Elsewhere a message is two requests of its sender, a write and a read that
// flips the bit behind it: by_requests.h. What both do alike is in sender.h and receiver.h, and
// way.h puts it together.
//
// Small messages share a slot, a bundle, and what is said above happens once for all of them, when
// it is full. Until then the receiver finds them by the sender's number `posted`, and reads them
// itself out of the sender's memory where that is not shared.
// docs/transports/batched.md has the whole.
#pragma once

#include <memory>

#include "transport/endpoint.h"
#include "transport/slots/slot_end.h"

namespace leat::detail {

// Allocates the slots and posts the receives: the peer may send once it has setup(). Throws
// kResource.
std::unique_ptr<Transport> make_batched(std::unique_ptr<Device> device,
                                        std::unique_ptr<QueuePair> queue_pair,
                                        const SlotOptions& options);
std::unique_ptr<Transport> make_batched(Endpoint end, const Settings& settings);

// The same for one of the two, whatever the device. By memory needs Limits::shares_memory.
std::unique_ptr<Transport> make_batched_by_memory(std::unique_ptr<Device> device,
                                                  std::unique_ptr<QueuePair> queue_pair,
                                                  const SlotOptions& options);
std::unique_ptr<Transport> make_batched_by_requests(std::unique_ptr<Device> device,
                                                    std::unique_ptr<QueuePair> queue_pair,
                                                    const SlotOptions& options);

}  // namespace leat::detail
