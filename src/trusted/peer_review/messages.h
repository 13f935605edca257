// The messages of PeerReview, little-endian; docs/trusted_systems.md has their bytes. Reading
// checks lengths and nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "leat/trusted/a2m.h"
#include "trusted/parts/messages.h"

namespace leat::trusted::detail {

// In addition to kRequest and kReply of MessageType.
enum class PeerMessage : std::uint8_t {
  kRecord = 32,  // a record of a node's log as it was attested, possibly forwarded
  kAudit = 33,   // a witness's challenge, or its request for the next piece
  kPiece = 34,   // a piece of a log, signed by the log's node
  kProof = 35,   // the reason why a node is exposed
};
std::optional<PeerMessage> peer_message(View message) noexcept;
Bytes write_record(View record);

// What a node attests: an entry of its log.
enum class EntryType : std::uint8_t {
  kContent = 1,   // of the root: requests, and the outputs of the next commands
  kResponse = 2,  // to a content: this node's outputs; none if the content is not in order
  kMark = 3,      // an audit's nonce
};
struct StreamPosition {
  std::uint32_t session = 0;
  std::uint64_t next = 0;  // all earlier records of that session have been received
  friend bool operator==(const StreamPosition&, const StreamPosition&) = default;
};
inline constexpr std::size_t kPositionBytes = 12;  // of a StreamPosition, written
struct LogEntry {
  EntryType type{};
  std::vector<StreamPosition> received;  // only changes, ascending by session
  std::optional<StateDigest> digest;     // of the state after it
  View body;                             // of a mark: the nonce; else a step
};
// The most bytes of an entry without its body, with a position for each of so many nodes.
std::size_t max_entry_bytes(std::size_t nodes);
std::optional<LogEntry> read_log_entry(View payload);
Bytes write_log_entry(const LogEntry& entry);

struct Audit {
  Nonce nonce{};
  std::uint64_t from = 0;  // the first record that is requested
};
std::optional<Audit> read_audit(View message);
Bytes write_audit(const Audit& audit);

// A piece: entries from `from` on, each with the records that it lists as received.
struct Piece {
  PartyId sender = 0;
  std::uint64_t epoch = 0;
  std::uint64_t from = 0;
  std::uint64_t tail = 0;  // the counter after the mark with the nonce
  Nonce nonce{};
  std::vector<std::pair<View, std::vector<View>>> entries;
};
std::optional<Piece> read_piece(View message);
// `entries` come from append_entry().
Bytes write_piece(const SigningKey& key, const Piece& piece, View entries);
void append_entry(Bytes& entries, View record, const std::vector<Bytes>& received);
// Only after read_piece().
bool verify_piece(const Directory& directory, View message, PartyId sender);

// Why a node is exposed: where to begin, and the node's pieces from there to the fault.
struct PeerProof {
  PartyId accused = 0;
  View snapshot;  // empty: begin at the first state
  View base;      // the accused's record with the snapshot's digest
  std::vector<View> pieces;
  // If the fault is that the log does not say what the node told a client: that answer, and what
  // nonce_of() made the nonce at the end of the pieces of.
  View answer, salt, digests;
};
// A nonce of an audit that shows which answers the witness had when it asked. `digests`: of each,
// its SHA-256.
Nonce nonce_of(View salt, View digests);
std::optional<PeerProof> read_proof(View message);
Bytes write_proof(const PeerProof& proof);

inline constexpr std::size_t kMaxPieceBytes = 192 * 1024;
inline constexpr std::size_t kMaxPieceEntries = 4096;

}  // namespace leat::trusted::detail
