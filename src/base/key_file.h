// Keys in files.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/fd.h"

namespace leat::detail {

// The setting that names the file, and what its key must be; also for errors.
struct KeyFile {
  const char* setting;
  const std::string& path;
  std::size_t min_bytes;
  std::size_t max_bytes;
};

// Opens a file with a secret; warns once if other users can read it. Throws kInvalidArgument.
Fd open_secret(const char* setting, const std::string& path);

// Reads a key of one line of hexadecimal digits. The caller wipes it. Both throw kInvalidArgument.
std::vector<unsigned char> read_key_file(const KeyFile& key);
std::vector<unsigned char> parse_key(const std::string& text, const KeyFile& file);

// Throws an error about such a file.
[[noreturn]] void refuse_file(const char* setting, const std::string& path, const std::string& why,
                              const std::string& advice = {});

}  // namespace leat::detail
