// The header of a log's file, and how the file is made. docs/trusted_systems.md has the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "leat/attest/attestation.h"

namespace leat::trusted::detail {

// The constant properties of a file, equal for every process that opens it.
struct LogFile {
  Session session;
  std::uint32_t device = 0;  // the attesting device
  std::uint64_t epoch = 0;
  bool digests = false;
  std::uint32_t payload_bytes = 0;
  std::uint32_t slot_bytes = 0;
};

inline constexpr std::size_t kFileHeaderBytes = 256;
// Behind the properties are words that change while the log is open.
inline constexpr std::size_t kTailOffset = 128, kCheckpointOffset = 192,
                             kCheckpointCopyOffset = 200;

std::string path_of_log(const std::string& folder, std::uint32_t session);
// Makes the file atomically if it does not exist; returns whether it did. Throws leat::Error.
bool make_log_file(const std::string& path, const LogFile& file);
// Throws leat::Error kInvalidArgument, saying how `header`, the file's first bytes, differs.
void check_log_file(const std::string& path, std::span<const std::byte> header,
                    const LogFile& file);

}  // namespace leat::trusted::detail
