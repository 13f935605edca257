#include "trusted/peer_review/messages.h"

#include <algorithm>
#include <iterator>

#include "base/wire.h"

namespace leat::trusted::detail {
namespace {

using leat::detail::WireReader;
using leat::detail::WireWriter;

constexpr std::size_t kNonceBytes = std::tuple_size_v<Nonce>;
constexpr std::size_t kDigestBytes = std::tuple_size_v<StateDigest>;
constexpr std::uint8_t kVersion = 1;
// Type, whether there is a digest (1 each), how many streams (2).
constexpr std::size_t kEntryHeaderBytes = 4;
constexpr std::size_t kAuditBytes = 1 + kNonceBytes + 8;
// Type, version, zeros (2), sender (4), epoch, from, tail (8 each), nonce.
constexpr std::size_t kPieceHeaderBytes = 32 + kNonceBytes;
constexpr std::size_t kMaxReceivedRecords = std::size_t{1} << 20;
constexpr std::size_t kMaxPieces = 65'536;

void write_header(const Piece& piece, Bytes& message) {
  WireWriter writer(message);
  writer.number(static_cast<std::uint8_t>(PeerMessage::kPiece));
  writer.number(kVersion);
  writer.number(std::uint16_t{0});
  writer.number(piece.sender);
  writer.number(piece.epoch);
  writer.number(piece.from);
  writer.number(piece.tail);
  writer.bytes(piece.nonce, kNonceBytes);
}

}  // namespace

std::optional<PeerMessage> peer_message(View message) noexcept {
  if (message.empty()) return std::nullopt;
  const auto type = std::to_integer<std::uint8_t>(message[0]);
  if (type < static_cast<std::uint8_t>(PeerMessage::kRecord) ||
      type > static_cast<std::uint8_t>(PeerMessage::kProof))
    return std::nullopt;
  return static_cast<PeerMessage>(type);
}

Bytes write_record(View record) {
  Bytes message(1 + record.size());
  message[0] = static_cast<std::byte>(PeerMessage::kRecord);
  std::ranges::copy(record, message.begin() + 1);
  return message;
}

std::size_t max_entry_bytes(std::size_t nodes) {
  return kEntryHeaderBytes + nodes * kPositionBytes + kDigestBytes;
}

std::optional<LogEntry> read_log_entry(View payload) {
  if (payload.size() < kEntryHeaderBytes) return std::nullopt;
  WireReader reader(payload);
  LogEntry entry;
  entry.type = static_cast<EntryType>(reader.number<std::uint8_t>());
  const auto with_digest = reader.number<std::uint8_t>();
  const std::size_t count = reader.number<std::uint16_t>();
  const std::size_t fixed =
      kEntryHeaderBytes + count * kPositionBytes + (with_digest == 1 ? kDigestBytes : 0);
  if (entry.type < EntryType::kContent || entry.type > EntryType::kMark || with_digest > 1 ||
      payload.size() < fixed)
    return std::nullopt;
  for (std::size_t i = 0; i < count; ++i) {
    StreamPosition received;
    received.session = reader.number<std::uint32_t>();
    received.next = reader.number<std::uint64_t>();
    if (i > 0 && received.session <= entry.received.back().session) return std::nullopt;
    entry.received.push_back(received);
  }
  if (with_digest == 1)
    std::ranges::copy(reader.bytes(kDigestBytes), entry.digest.emplace().begin());
  entry.body = payload.subspan(fixed);
  if (entry.type == EntryType::kMark && entry.body.size() != kNonceBytes) return std::nullopt;
  return entry;
}

Bytes write_log_entry(const LogEntry& entry) {
  const std::size_t fixed = kEntryHeaderBytes + entry.received.size() * kPositionBytes +
                            (entry.digest ? kDigestBytes : 0);
  Bytes payload(fixed + entry.body.size());
  WireWriter writer(payload);
  writer.number(static_cast<std::uint8_t>(entry.type));
  writer.number(std::uint8_t{entry.digest ? std::uint8_t{1} : std::uint8_t{0}});
  writer.number(static_cast<std::uint16_t>(entry.received.size()));
  for (const StreamPosition& received : entry.received) {
    writer.number(received.session);
    writer.number(received.next);
  }
  if (entry.digest) writer.bytes(*entry.digest, kDigestBytes);
  writer.bytes(entry.body, entry.body.size());
  return payload;
}

std::optional<Audit> read_audit(View message) {
  if (message.size() != kAuditBytes || peer_message(message) != PeerMessage::kAudit)
    return std::nullopt;
  WireReader reader(message.subspan(1));
  Audit audit;
  std::ranges::copy(reader.bytes(kNonceBytes), audit.nonce.begin());
  audit.from = reader.number<std::uint64_t>();
  return audit;
}

Bytes write_audit(const Audit& audit) {
  Bytes message(kAuditBytes);
  WireWriter writer(message);
  writer.number(static_cast<std::uint8_t>(PeerMessage::kAudit));
  writer.bytes(audit.nonce, kNonceBytes);
  writer.number(audit.from);
  return message;
}

std::optional<Piece> read_piece(View message) {
  if (message.size() < kPieceHeaderBytes + kSignatureBytes ||
      peer_message(message) != PeerMessage::kPiece)
    return std::nullopt;
  WireReader reader(message.subspan(1));
  Piece piece;
  if (reader.number<std::uint8_t>() != kVersion || !reader.zeros(2)) return std::nullopt;
  piece.sender = reader.number<std::uint32_t>();
  piece.epoch = reader.number<std::uint64_t>();
  piece.from = reader.number<std::uint64_t>();
  piece.tail = reader.number<std::uint64_t>();
  std::ranges::copy(reader.bytes(kNonceBytes), piece.nonce.begin());
  const View body =
      message.subspan(kPieceHeaderBytes, message.size() - kPieceHeaderBytes - kSignatureBytes);
  const auto blobs = read_blobs(body, 2 * kMaxPieceEntries);
  if (!blobs || blobs->size() % 2 != 0) return std::nullopt;
  for (std::size_t i = 0; i < blobs->size(); i += 2) {
    auto received = read_blobs((*blobs)[i + 1], kMaxReceivedRecords);
    if (!received) return std::nullopt;
    piece.entries.emplace_back((*blobs)[i], std::move(*received));
  }
  return piece;
}

Bytes write_piece(const SigningKey& key, const Piece& piece, View entries) {
  const std::size_t signed_bytes = kPieceHeaderBytes + entries.size();
  Bytes message(signed_bytes + kSignatureBytes);
  write_header(piece, message);
  std::ranges::copy(entries, message.begin() + kPieceHeaderBytes);
  std::ranges::copy(key.sign(View(message).first(signed_bytes)),
                    message.end() - static_cast<std::ptrdiff_t>(kSignatureBytes));
  return message;
}

void append_entry(Bytes& entries, View record, const std::vector<Bytes>& received) {
  append_blob(entries, record);
  Bytes list;
  for (const Bytes& one : received) append_blob(list, one);
  append_blob(entries, list);
}

bool verify_piece(const Directory& directory, View message, PartyId sender) {
  const std::size_t bytes = message.size() - kSignatureBytes;
  return directory.verify(sender, message.first(bytes), message.subspan(bytes));
}

Nonce nonce_of(View salt, View digests) {
  Bytes both(salt.begin(), salt.end());
  both.insert(both.end(), digests.begin(), digests.end());
  return digest_of(both);
}

// Seven blobs: accused (4), snapshot, base, list of pieces, answer, salt, digests.
std::optional<PeerProof> read_proof(View message) {
  if (peer_message(message) != PeerMessage::kProof) return std::nullopt;
  const auto blobs = read_blobs(message.subspan(1), 7);
  if (!blobs || blobs->size() != 7 || (*blobs)[0].size() != sizeof(PartyId)) return std::nullopt;
  auto pieces = read_blobs((*blobs)[3], kMaxPieces);
  if (!pieces) return std::nullopt;
  return PeerProof{.accused = WireReader((*blobs)[0]).number<std::uint32_t>(),
                   .snapshot = (*blobs)[1],
                   .base = (*blobs)[2],
                   .pieces = std::move(*pieces),
                   .answer = (*blobs)[4],
                   .salt = (*blobs)[5],
                   .digests = (*blobs)[6]};
}

Bytes write_proof(const PeerProof& proof) {
  Bytes message{static_cast<std::byte>(PeerMessage::kProof)};
  Bytes accused(sizeof proof.accused), list;
  WireWriter(accused).number(proof.accused);
  for (const View piece : proof.pieces) append_blob(list, piece);
  for (const View blob : {View(accused), proof.snapshot, proof.base, View(list), proof.answer,
                          proof.salt, proof.digests})
    append_blob(message, blob);
  return message;
}

}  // namespace leat::trusted::detail
