#include "leat/channel.h"
#include "leat/trusted/recipe.h"
#include "socket/channel_core.h"

namespace leat::trusted {

std::span<const std::byte> record_of(const Message& message) {
  return leat::detail::ChannelCore::record_of(message);
}

}  // namespace leat::trusted
