// Attested append-only memory (A2M): logs whose entries an attestation kernel numbers, so that a
// host cannot show two entries for one number, drop one unseen, or pass an old state for the new.
//
// The log lies in plain memory or files of the untrusted host; only keys and counters are in the
// kernel (TNIC, ASPLOS 2025, section 7 and appendix C.2, which this follows;
// docs/trusted_systems.md says where it had to be corrected). This is the host's side;
// a2m_verifier.h is its clients'.
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

#include "leat/export.h"
#include "leat/trusted/attestation.h"

namespace leat::trusted {

using Nonce = std::array<std::byte, 32>;
using Record = std::vector<std::byte>;

// What an entry is; attested with it, as the record's slot. The numbers are those of the bytes.
enum class EntryKind : std::uint8_t {
  kContext = 1,     // what was appended
  kTruncation = 2,  // of a log: entries below `head` are forgotten; its context is the nonce
  kManifest = 3,    // of the MANIFEST: its context is the record of a truncation
  kEnd = 4,         // says how many entries there were when its context, a nonce, was given
};

// An entry is a record of Kind::kLog: the session is the log, the counter the index. Views into it.
struct Entry {
  std::uint32_t log = 0;
  std::uint64_t index = 0;
  EntryKind kind = EntryKind::kContext;
  std::uint64_t head = 0;             // of kTruncation
  std::span<const std::byte> digest;  // cumulative, 32 bytes; empty in logs without
  std::span<const std::byte> context;
};
// No value: not the record of an entry. Proves nothing until a kernel has verified the record.
LEAT_EXPORT std::optional<Entry> read_entry(std::span<const std::byte> record) noexcept;

enum class LookupStatus : std::uint8_t {
  kAssigned = 1,    // here it is
  kForgotten = 2,   // below the head
  kUnassigned = 3,  // not yet: not below the tail
  kLost = 4,        // attested, and the host does not have it: to a verifier as good as hidden
};
LEAT_EXPORT std::string_view to_string(LookupStatus status) noexcept;

// The entries that are there: head <= index < tail.
struct LogBounds {
  std::uint64_t head = 0;
  std::uint64_t tail = 0;
  friend bool operator==(const LogBounds&, const LogBounds&) = default;
};

struct LogOptions {
  std::uint32_t session = 0;  // in the kernel: Role::kLog, or kGroupSender to let others verify
  std::size_t max_context_bytes = 64;                  // of an entry; each takes as much room
  std::uint64_t max_entries = std::uint64_t{1} << 27;  // address space, not memory
  // Each entry also attests SHA-256 of itself and of all before it.
  bool digests = false;
};

struct MemoryOptions {
  std::string folder;          // of one file for each log, for this user; empty: no files
  std::uint32_t manifest = 0;  // session of the log that keeps the truncations of the others
  std::uint64_t max_manifest_entries = std::uint64_t{1} << 24;
  std::vector<LogOptions> logs;
  bool check_all = false;  // verify every entry when opening, not only those since the checkpoint
};

// What was found of a log when its file was opened. The kernel's counter says what must be there.
struct Recovery {
  struct Range {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };
  static constexpr std::size_t kMostRanges = 64;

  std::uint32_t log = 0;
  LogBounds bounds;
  std::uint64_t verified_from = 0;  // all from here to the tail were verified, or are lost
  std::uint64_t lost = 0;           // attested since, and not in the file or not as attested
  std::vector<Range> lost_ranges;   // the first kMostRanges of them, ascending
  bool new_file = false;
  bool finished_truncation = false;  // one that a crash had cut in the middle
};

// Several logs and their MANIFEST, kept by one process: a second that opens the folder is refused.
//
// In files it is memory-mapped. An append that returned survives the process, however it ends; one
// that was under way may leave its number lost. Against a failing machine: sync(). A log lives in
// the epoch of its kernel, because no later one can verify it; of an older one it says so. With
// sessions of Role::kGroupReceiver it opens for reading only, so that archives can be verified.
//
// Owner: the caller; the kernel outlives it. Threads: any, at the same time; appends to one log
// take turns, lookups wait for nothing. Throws leat::Error, as each says; then nothing was changed
// but, if the kernel attested and then the system failed, that index is lost.
class LEAT_EXPORT AttestedMemory {
 public:
  // Throws kInvalidArgument: options, sessions, a damaged or foreign file, a kernel that counts
  // fewer entries than the file has; kUnavailable: another process has it open; kSystem, kResource.
  AttestedMemory(AttestationKernel& kernel, const MemoryOptions& options);
  AttestedMemory(AttestedMemory&&) noexcept;
  AttestedMemory& operator=(AttestedMemory&&) noexcept;
  ~AttestedMemory();

  // One for each log in the order of the options, the MANIFEST's last. Empty without files.
  const std::vector<Recovery>& recoveries() const noexcept;

  // Returns the index; `record` receives the entry. Throws kTooLarge: the context, or the log is
  // full; kInvalidArgument: no such log, or for reading only; kResource: no room; kUnavailable: the
  // kernel refuses.
  std::uint64_t append(std::uint32_t log, std::span<const std::byte> context,
                       Record* record = nullptr);

  // Copies the whole entry into `record` if the status is kAssigned; verifies nothing. Also for the
  // MANIFEST. Throws kInvalidArgument: no such log.
  LookupStatus lookup(std::uint32_t log, std::uint64_t index, Record& record) const;

  // Forgets what is below `head`, and gives its memory back. Returns the entry of the MANIFEST.
  // Throws kInvalidArgument if the head would go down or beyond the tail, or the nonce was used for
  // a truncation before; and as append().
  Record truncate(std::uint32_t log, std::uint64_t head, const Nonce& nonce);

  // Appends an entry of kEnd: its index says how many entries came before the nonce was known. For
  // logs and for the MANIFEST. Throws as append().
  Record end(std::uint32_t log, const Nonce& nonce);

  // As this host has it; proves nothing. Throws kInvalidArgument: no such log.
  LogBounds bounds(std::uint32_t log) const;

  // Verifies every entry of a log: what is lost. Throws as lookup(), and kUnavailable if the kernel
  // cannot.
  Recovery check(std::uint32_t log) const;

  // Everything appended so far is on the disk when it returns, and the next opening need not verify
  // it. Throws kSystem.
  void sync();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace leat::trusted
