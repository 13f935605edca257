#include "transport/parts/refusals.h"

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

void refuse_reservation(std::size_t bytes, std::size_t max_in_place_bytes, const char* advice) {
  throw Error(ErrorCode::kTooLarge,
              "cannot reserve " + std::to_string(bytes) + " bytes: at most " +
                  std::to_string(max_in_place_bytes) + " fit in place",
              advice);
}

void refuse_while_unfinished(Context context) {
  throw Error(ErrorCode::kInvalidArgument, "reserve: an earlier send or reservation of context " +
                                               std::to_string(context) + " is not finished");
}

void refuse_commit(std::size_t bytes) {
  throw Error(ErrorCode::kInvalidArgument,
              "commit of " + std::to_string(bytes) + " bytes without a reservation of that size");
}

}  // namespace leat::detail
