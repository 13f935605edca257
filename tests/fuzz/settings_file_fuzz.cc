// Configuration files.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/quote.h"
#include "base/setting_sources.h"
#include "fuzz/property.h"
#include "leat/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace leat::detail;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    for (const ConfiguredValue& value : parse_settings_file(text, "file")) {
      require(!value.name.empty(), "a setting has a name");
      require(!has_control_characters(value.name + value.value), "a setting is one line of text");
      require(value.place.starts_with("file:"), "a setting has a place");
    }
  } catch (const leat::Error& error) {
    require(std::string(error.what()).starts_with("file:"), "an error names the line");
  }
  return 0;
}
