#include "transport/batched/batched.h"

#include <utility>

namespace leat::detail {

std::unique_ptr<Transport> make_batched(std::unique_ptr<Device> device,
                                        std::unique_ptr<QueuePair> queue_pair,
                                        const SlotOptions& options) {
  const auto make =
      device->limits().shares_memory ? make_batched_by_memory : make_batched_by_requests;
  return make(std::move(device), std::move(queue_pair), options);
}

std::unique_ptr<Transport> make_batched(Endpoint end, const Settings& settings) {
  const SlotOptions options = SlotOptions::of(settings, end.depths);
  return make_batched(std::move(end.device), std::move(end.queue_pair), options);
}

}  // namespace leat::detail
