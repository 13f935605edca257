// The hello of a handshake: bytes from anyone who can reach the port.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fuzz/property.h"
#include "handshake/hello.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace leat::detail;
  const auto frame = std::as_bytes(std::span(data, size));
  try {
    const auto bytes = encode(decode_hello(frame));
    require(std::equal(bytes.begin(), bytes.end(), frame.begin(), frame.end()),
            "a frame that is accepted says everything it carries");
  } catch (const leat::Error& error) {
    require(error.what()[0] != '\0', "an error says what is wrong");
  }
  return 0;
}
