// Keys in files.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
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

// The most open mode (but for the owner's bits) that a secret of user `owner` may have for a
// process of user `own`: a group may read root's, as where several services have one key; none: it
// may not be that owner's. Any thread.
std::optional<mode_t> most_open_mode(uid_t owner, uid_t own);

// Opens a file with a secret. Throws kInvalidArgument, also if it is another user's or more open
// than that. Any thread.
Fd open_secret(const char* setting, const std::string& path);

// Reads a key of one line of hexadecimal digits. The caller wipes it. Both throw kInvalidArgument.
std::vector<unsigned char> read_key_file(const KeyFile& key);
std::vector<unsigned char> parse_key(const std::string& text, const KeyFile& file);

// Throws an error about such a file.
[[noreturn]] void refuse_file(const char* setting, const std::string& path, const std::string& why,
                              const std::string& advice = {});

}  // namespace leat::detail
