// What master and worker of a group say first: a message from anyone who got a connection.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "channel/group/hello.h"
#include "fuzz/property.h"

namespace {

using leat::detail::require;

template <typename Decode>
void check(std::span<const std::byte> message, const Decode& decode) {
  try {
    const auto bytes = encode(decode(message));
    require(std::equal(bytes.begin(), bytes.end(), message.begin(), message.end()),
            "a message that is accepted says everything it carries");
  } catch (const leat::Error& error) {
    require(error.what()[0] != '\0', "an error says what is wrong");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto message = std::as_bytes(std::span(data, size));
  check(message, leat::detail::decode_group_hello);
  check(message, leat::detail::decode_group_answer);
  return 0;
}
