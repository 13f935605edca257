#include "transport/parts/requests.h"

#include <cstddef>
#include <string>

#include "leat/error.h"

namespace leat::detail {

void post_all_receives(QueuePair& queue_pair, std::size_t count) {
  if (queue_pair.post_receives(count) != count)
    throw Error(ErrorCode::kSystem,
                "cannot post " + std::to_string(count) + " receives on " + queue_pair.describe());
}

std::string failure(const char* what, CompletionStatus why, const QueuePair& where) {
  return std::string(what) + " failed: " + to_string(why) + " (" + where.describe() + ")";
}

}  // namespace leat::detail
