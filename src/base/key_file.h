// Keys that stand in files.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/fd.h"

namespace leat::detail {

// The setting that names the file and what the key must be, for errors too.
struct KeyFile {
  const char* setting;
  const std::string& path;
  std::size_t min_bytes;
  std::size_t max_bytes;
};

// Opens a secret, and warns once if others can read it. Throws kInvalidArgument.
Fd open_secret(const char* setting, const std::string& path);

// A key of one line of hexadecimal digits. The caller wipes it. Both throw kInvalidArgument.
std::vector<unsigned char> read_key_file(const KeyFile& key);
std::vector<unsigned char> parse_key(const std::string& text, const KeyFile& file);

// An error about such a file.
[[noreturn]] void refuse_file(const char* setting, const std::string& path, const std::string& why,
                              const std::string& advice = {});

}  // namespace leat::detail
