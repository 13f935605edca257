// The bytes of a record's header: docs/attestation.md. Pure.
#pragma once

#include <cstddef>
#include <span>

#include "leat/trusted/attestation.h"

namespace leat::trusted::detail {

// Reads the header of `record`; kLength or kFormat if it is no record.
Verdict read_header(std::span<const std::byte> record, RecordHeader& header) noexcept;
// The same of the header alone, whose length of the payload is not compared with anything.
Verdict parse_header(std::span<const std::byte, kHeaderBytes> bytes, RecordHeader& header) noexcept;
void write_header(const RecordHeader& header, std::span<std::byte, kHeaderBytes> bytes) noexcept;

// Bytes of the MAC slot that the algorithm uses.
std::size_t mac_bytes(Algorithm algorithm) noexcept;

bool is_algorithm(Algorithm algorithm) noexcept;
bool is_kind(Kind kind) noexcept;

}  // namespace leat::trusted::detail
