// Why a message is refused, in the same words by every transport.
#pragma once

#include <cstddef>

#include "transport/transport.h"

namespace leat::detail {

// kTooLarge: above max_message_bytes.
[[noreturn]] void refuse_too_large(std::size_t bytes, std::size_t max_message_bytes);
// kInvalidArgument: that context's reservation is neither committed nor abandoned.
[[noreturn]] void refuse_while_reserved(Context context);

}  // namespace leat::detail
