#include "transport/requests.h"

#include <cstddef>
#include <string>

#include "leat/error.h"

namespace leat::detail {

void post_receives(QueuePair& queue_pair, std::span<const ReceiveRequest> receives) {
  for (std::span<const ReceiveRequest> left = receives; !left.empty();) {
    const std::size_t posted = queue_pair.post_receive(left);
    if (posted == 0)
      throw Error(ErrorCode::kSystem, "cannot post " + std::to_string(receives.size()) +
                                          " receives on " + queue_pair.describe());
    left = left.subspan(posted);
  }
}

}  // namespace leat::detail
