// Attested append-only memory (A2M): logs whose entries an attestation kernel ("attestor") numbers,
// so that a host cannot show two entries with one number, hide one, or present an old state as the
// current one.
//
// The log lies in memory or files of the untrusted host; the attestor holds only keys and counters.
// This follows TNIC (ASPLOS 2025, section 7 and appendix C.2); docs/trusted_systems.md says where
// the paper had to be corrected. This header is the host's side, a2m_verifier.h that of its
// clients.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "leat/attest/attestation.h"
#include "leat/export.h"
#include "leat/held.h"

namespace leat::trusted {

using Nonce = std::array<std::byte, 32>;
using Record = std::vector<std::byte>;

// What an entry is. It is attested with the entry, as the record's slot; the numbers are those in
// the bytes.
enum class EntryKind : std::uint8_t {
  kContext = 1,     // what was appended
  kTruncation = 2,  // of a log: entries below `head` are forgotten; the context is the nonce
  kManifest = 3,    // of the MANIFEST: the context is the record of a truncation
  kEnd = 4,         // tells how many entries existed when its context, a nonce, was given
};

// An entry is a record of Kind::kLog: its session is the log, its counter the index. This is a view
// into the record.
struct Entry {
  std::uint32_t log = 0;
  std::uint64_t index = 0;
  EntryKind kind = EntryKind::kContext;
  std::uint64_t head = 0;             // of kTruncation
  std::span<const std::byte> digest;  // cumulative, 32 bytes; empty in logs without digests
  std::span<const std::byte> context;
};
// No value if the record is not that of an entry. Proves nothing until an attestor has verified the
// record.
LEAT_EXPORT std::optional<Entry> read_entry(std::span<const std::byte> record) noexcept;

enum class LookupStatus : std::uint8_t {
  kAssigned = 1,    // the entry exists and is returned
  kForgotten = 2,   // below the head
  kUnassigned = 3,  // not below the tail: not appended yet
  kLost = 4,        // attested, but the host lost it; a verifier must treat it as hidden
};
LEAT_EXPORT std::string_view to_string(LookupStatus status) noexcept;

// The entries that exist: head <= index < tail.
struct LogBounds {
  std::uint64_t head = 0;
  std::uint64_t tail = 0;
  friend bool operator==(const LogBounds&, const LogBounds&) = default;
};

struct LogOptions {
  std::uint32_t session = 0;           // Role::kLog, or kGroupSender to let others verify
  std::size_t max_context_bytes = 64;  // limit of an entry's context; each entry takes so much room
  std::uint64_t max_entries = std::uint64_t{1} << 27;  // takes address space, not memory
  // Whether each entry also attests a SHA-256 digest of itself and all entries before it.
  bool digests = false;
};

struct MemoryOptions {
  std::string folder;  // holds one file for each log, readable by this user; empty: no files
  std::uint32_t manifest = 0;  // session of the log that keeps the other logs' truncations
  std::uint64_t max_manifest_entries = std::uint64_t{1} << 24;
  std::vector<LogOptions> logs;
  bool check_all = false;  // verify every entry when opening, not only those since the checkpoint
};

// What opening a log's file found. The attestor's counter says which entries must exist.
struct Recovery {
  struct Range {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };
  static constexpr std::size_t kMostRanges = 64;

  std::uint32_t log = 0;
  LogBounds bounds;
  std::uint64_t verified_from = 0;  // every entry from here to the tail was verified or is lost
  std::uint64_t lost = 0;           // attested, but missing from the file or not as attested
  std::vector<Range> lost_ranges;   // the first kMostRanges of them, in ascending order
  bool new_file = false;
  bool finished_truncation = false;  // completed one that a crash had interrupted
};

// Several logs and their MANIFEST. One process at a time has a folder open; a second one is
// refused.
//
// Files are memory-mapped. An append that has returned survives the process, however that ends; one
// that was under way may leave its index lost. sync() protects against a failing machine. A log
// lives in the epoch of its attestor, because no later epoch can verify it; opening a log of an
// older epoch says so. With sessions of Role::kGroupReceiver the logs open for reading only, so
// that archives can be verified.
//
// Owner: the caller; the attestor outlives it. Threads: any, concurrently; appends to one log take
// turns, lookups never wait. A child of fork() can only look up: calls that append or sync throw
// kClosed there. Calls throw leat::Error as stated below, and have then changed
// nothing, with one exception: if the attestor attested and the system failed afterwards, that
// index is lost.
class LEAT_EXPORT AttestedMemory {
 public:
  // Throws kInvalidArgument for wrong options or sessions, a damaged or foreign file, or an
  // attestor that counts fewer entries than the file has; kUnavailable if another process has the
  // folder open; kSystem, kResource.
  AttestedMemory(AttestationKernel& kernel, const MemoryOptions& options);
  AttestedMemory(AttestedMemory&&) noexcept;
  AttestedMemory& operator=(AttestedMemory&&) noexcept;
  ~AttestedMemory();

  // One for each log, in the order of the options, and the MANIFEST's last. Empty without files.
  const std::vector<Recovery>& recoveries() const;

  // Appends an entry and returns its index; stores it in `record`, if not null. Throws kTooLarge if
  // the context exceeds max_context_bytes or the log is full; kInvalidArgument for an unknown log
  // or one open for reading only; kResource if no room is left; kUnavailable if the attestor
  // refuses.
  std::uint64_t append(std::uint32_t log, std::span<const std::byte> context,
                       Record* record = nullptr);

  // Returns the status of an index; for kAssigned copies the whole entry into `record`. Verifies
  // nothing. Works for the MANIFEST too. Throws kInvalidArgument for an unknown log.
  LookupStatus lookup(std::uint32_t log, std::uint64_t index, Record& record) const;

  // Forgets the entries below `head` and frees their memory. Returns the entry of the MANIFEST.
  // Throws kInvalidArgument if `head` is below the log's head or beyond its tail, or if `nonce` was
  // used for an earlier truncation; otherwise as append().
  Record truncate(std::uint32_t log, std::uint64_t head, const Nonce& nonce);

  // Appends an entry of kEnd and returns it: its index tells how many entries existed before the
  // nonce was known. Works for the MANIFEST too. Throws as append().
  Record end(std::uint32_t log, const Nonce& nonce);

  // The bounds as this host has them; they prove nothing. Throws kInvalidArgument for an unknown
  // log.
  LogBounds bounds(std::uint32_t log) const;

  // Verifies every entry of a log and returns what is lost. Throws as lookup(), and kUnavailable if
  // the attestor does not answer.
  Recovery check(std::uint32_t log) const;

  // Writes everything appended so far to the disk; the next opening need not verify that again.
  // Throws kSystem.
  void sync();

 private:
  struct LEAT_HIDDEN State;
  leat::detail::Held<std::unique_ptr<State>> state_;
};

}  // namespace leat::trusted
