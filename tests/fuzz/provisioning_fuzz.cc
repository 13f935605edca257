// A provisioning frame: bytes from whoever holds the controller's end of the socket.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fuzz/property.h"
#include "trusted/provisioning.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace leat::trusted;
  using leat::detail::require;
  const auto frame = std::as_bytes(std::span(data, size));
  if (const auto order = detail::decode(frame)) {
    const auto again = detail::encode(*order);
    require(std::equal(again.begin(), again.end(), frame.begin(), frame.end()),
            "a frame that is accepted says everything it carries");
  }
  detail::Provisioned kernel(0, [](std::uint64_t) {});
  const auto begun = kernel.answer(frame);
  const auto answer = kernel.answer(frame);
  require(detail::decode(answer).has_value(), "every frame is answered");
  require(!kernel.enabled(), "one frame, twice, enables nothing");
  (void)begun;
  return 0;
}
