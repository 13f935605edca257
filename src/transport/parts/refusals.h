// Why a message is refused, in the same words by every transport.
#pragma once

#include <cstddef>

#include "transport/transport.h"

namespace leat::detail {

// kTooLarge: above max_message_bytes.
[[noreturn]] void refuse_too_large(std::size_t bytes, std::size_t max_message_bytes);
// kInvalidArgument: that context's reservation is neither committed nor abandoned.
[[noreturn]] void refuse_while_reserved(Context context);
// Of try_reserve. kTooLarge: above max_in_place_bytes; kInvalidArgument: an earlier message of that
// context is under way or reserved.
[[noreturn]] void refuse_reservation(std::size_t bytes, std::size_t max_in_place_bytes,
                                     const char* advice);
[[noreturn]] void refuse_while_unfinished(Context context);
// Of try_commit, kInvalidArgument: nothing is reserved, or less.
[[noreturn]] void refuse_commit(std::size_t bytes);

}  // namespace leat::detail
