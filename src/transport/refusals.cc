#include "transport/refusals.h"

#include <string>

#include "leat/error.h"

namespace leat::detail {

void refuse_too_large(std::size_t bytes, std::size_t max_message_bytes) {
  throw Error(ErrorCode::kTooLarge,
              "a message of " + std::to_string(bytes) + " bytes is above max_message_bytes (" +
                  std::to_string(max_message_bytes) + ")",
              "Send it in parts, or raise max_message_bytes on both sides.");
}

void refuse_while_reserved(Context context) {
  throw Error(ErrorCode::kInvalidArgument,
              "context " + std::to_string(context) + " has an open reservation",
              "Commit or abandon it first.");
}

}  // namespace leat::detail
