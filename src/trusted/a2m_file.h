// The header of a log's file, and how a file comes to be. docs/trusted_systems.md has the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "leat/trusted/attestation.h"

namespace leat::trusted::detail {

// What never changes of a file; equal for all who open it.
struct LogFile {
  Session session;
  std::uint32_t device = 0;  // that attests
  std::uint64_t epoch = 0;
  bool digests = false;
  std::uint32_t payload_bytes = 0;
  std::uint32_t slot_bytes = 0;
};

// Behind that, words that change while the log is open.
inline constexpr std::size_t kTailOffset = 128, kCheckpointOffset = 192,
                             kCheckpointCopyOffset = 200;

std::string path_of_log(const std::string& folder, std::uint32_t session);
// Makes the file at once and whole, if there is none; whether it did. Throws leat::Error.
bool make_log_file(const std::string& path, const LogFile& file);
// Throws leat::Error kInvalidArgument, saying how `header`, the file's first bytes, is another.
void check_log_file(const std::string& path, std::span<const std::byte> header,
                    const LogFile& file);

}  // namespace leat::trusted::detail
