// The setting `device`, and device names that it is asked about: a list, a zero, a name.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/property.h"
#include "handshake/device_list.h"
#include "leat/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace leat::detail;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = std::min(text.find('\0'), text.size());
  try {
    const DeviceList list(text.substr(0, zero));
    if (list.allows(text.substr(std::min(zero + 1, text.size())))) {
      const bool some = std::ranges::any_of(
          device_rows(), [&](const DeviceRow& kind) { return list.allows(kind); });
      require(some, "an allowed device is of an allowed kind");
    }
  } catch (const leat::Error& error) {
    require(error.code() == leat::ErrorCode::kInvalidArgument, "a bad list is a bad argument");
  }
  return 0;
}
