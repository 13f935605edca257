// The bytes of a record's header: docs/attestation.md. Pure.
#pragma once

#include <cstddef>
#include <span>

#include "leat/attest/attestation.h"

namespace leat::trusted::detail {

// Reads the header of `record`. Returns kLength or kFormat if it is not a record.
Verdict read_header(std::span<const std::byte> record, RecordHeader& header) noexcept;
// The same for the header alone; compares its payload length with nothing.
Verdict parse_header(std::span<const std::byte, kHeaderBytes> bytes, RecordHeader& header) noexcept;
LEAT_EXPORT void write_header(const RecordHeader& header,
                              std::span<std::byte, kHeaderBytes> bytes) noexcept;

// How many bytes of the MAC slot the algorithm uses. Exported, as is write_header, for
// libleat_trusted.
LEAT_EXPORT std::size_t mac_bytes(Algorithm algorithm) noexcept;

bool is_algorithm(Algorithm algorithm) noexcept;
bool is_kind(Kind kind) noexcept;

}  // namespace leat::trusted::detail
