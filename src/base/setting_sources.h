// Settings from outside a program's code: configuration files and the environment.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace leat::detail {

struct ConfiguredValue {
  std::string name;    // "spin_us"
  std::string value;   // as written
  std::string place;   // the exact place, for errors: "LEAT_SPIN_US", "/etc/leat.conf:3"
  std::string source;  // "environment", "/etc/leat.conf"
};

// The `key = value` lines of a file's text. Empty lines are skipped, `#` at the start of a line or
// after a space begins a comment, a later line wins. Pure. Throws kInvalidArgument that names
// `path` and the line.
std::vector<ConfiguredValue> parse_settings_file(std::string_view text, const std::string& path);

// The values in /etc/leat.conf, ~/.leat.conf and the file named by LEAT_CONF_FILE, in this order:
// later ones win. Only the last must exist. Throws kInvalidArgument.
std::vector<ConfiguredValue> file_values();

// The LEAT_* variables, known or not, except those that are not settings (LEAT_CONF_FILE,
// LEAT_TEST_*, LEAT_VM_*) and empty ones, which count as unset. None in a set-user-id program,
// whose caller must not control it.
std::vector<ConfiguredValue> environment_values();

// "spin_us" to "LEAT_SPIN_US".
std::string variable_of(std::string_view setting);

}  // namespace leat::detail
