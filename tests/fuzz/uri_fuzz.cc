// Addresses, from users and from programs that pass on what others gave them.
#include "base/uri.h"

#include <cstddef>
#include <cstdint>

#include "fuzz/property.h"
#include "leat/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace leat::detail;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const Uri uri = parse_uri(text);
    require(uri.host.size() <= text.size(), "a host is part of the address");
    require(uri.host.find_first_of(" /?@\n") == std::string::npos,
            "a host has no other part in it");
    for (const auto& [name, value] : uri.parameters) {
      require(!name.empty(), "a parameter has a name");
      require(value.find('\0') == std::string::npos, "a value is a C string");
    }
  } catch (const leat::Error& error) {
    require(error.code() == leat::ErrorCode::kInvalidArgument, "a bad address is a bad argument");
  }
  return 0;
}
