#include "attest/record.h"

#include <algorithm>

#include "base/wire.h"

namespace leat::trusted {
namespace detail {
namespace {

constexpr std::uint32_t kRecordMagic = 0x7474'616c;  // "latt" in memory
constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kReservedBytes = 16;

}  // namespace

bool is_algorithm(Algorithm algorithm) noexcept {
  return algorithm >= Algorithm::kHmacSha256 && algorithm <= Algorithm::kAes256Gmac;
}

bool is_kind(Kind kind) noexcept { return kind >= Kind::kSend && kind <= Kind::kEnd; }

std::size_t mac_bytes(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::kHmacSha256:
      return 32;
    case Algorithm::kHmacSha384:
      return 48;
    case Algorithm::kHmacSha512:
      return 64;
    case Algorithm::kAes256Gmac:
      return 16;
  }
  return 0;
}

Verdict read_header(std::span<const std::byte> record, RecordHeader& header) noexcept {
  if (record.size() < kRecordOverheadBytes) return Verdict::kLength;
  const Verdict verdict = parse_header(record.first<kHeaderBytes>(), header);
  if (verdict != Verdict::kOk) return verdict;
  return header.payload_bytes == record.size() - kRecordOverheadBytes ? Verdict::kOk
                                                                      : Verdict::kLength;
}

Verdict parse_header(std::span<const std::byte, kHeaderBytes> bytes,
                     RecordHeader& header) noexcept {
  leat::detail::WireReader reader(bytes);
  if (reader.number<std::uint32_t>() != kRecordMagic || reader.number<std::uint8_t>() != kVersion)
    return Verdict::kFormat;
  header.algorithm = static_cast<Algorithm>(reader.number<std::uint8_t>());
  header.kind = static_cast<Kind>(reader.number<std::uint8_t>());
  header.stream = reader.number<std::uint8_t>();
  header.session = reader.number<std::uint32_t>();
  header.device = reader.number<std::uint32_t>();
  header.epoch = reader.number<std::uint64_t>();
  header.counter = reader.number<std::uint64_t>();
  header.payload_bytes = reader.number<std::uint32_t>();
  header.slot = reader.number<std::uint32_t>();
  header.offset = reader.number<std::uint64_t>();
  if (!is_algorithm(header.algorithm)) return Verdict::kAlgorithm;
  if (!is_kind(header.kind) || header.stream >= kStreams || !reader.zeros(kReservedBytes))
    return Verdict::kFormat;
  return Verdict::kOk;
}

void write_header(const RecordHeader& header, std::span<std::byte, kHeaderBytes> bytes) noexcept {
  leat::detail::WireWriter writer(bytes);
  writer.number(kRecordMagic);
  writer.number(kVersion);
  writer.number(static_cast<std::uint8_t>(header.algorithm));
  writer.number(static_cast<std::uint8_t>(header.kind));
  writer.number(header.stream);
  writer.number(header.session);
  writer.number(header.device);
  writer.number(header.epoch);
  writer.number(header.counter);
  writer.number(header.payload_bytes);
  writer.number(header.slot);
  writer.number(header.offset);
  writer.bytes({}, kReservedBytes);
}

}  // namespace detail

void write_record(const Proof& proof, std::span<const std::byte> payload,
                  std::span<std::byte> record) noexcept {
  std::ranges::copy(proof.header, record.begin());
  std::byte* place = record.data() + kHeaderBytes;
  if (payload.data() != place) std::ranges::copy(payload, place);
  std::ranges::copy(proof.mac, record.last(kMacSlotBytes).begin());
}

std::optional<RecordHeader> read_header(std::span<const std::byte> record) noexcept {
  RecordHeader header;
  if (detail::read_header(record, header) != Verdict::kOk) return std::nullopt;
  return header;
}

}  // namespace leat::trusted
