#include "channel/channel_core.h"
#include "leat/attest/recipe.h"
#include "leat/channel.h"

namespace leat::trusted {

std::span<const std::byte> record_of(const Message& message) {
  return leat::detail::ChannelCore::record_of(message);
}

}  // namespace leat::trusted
