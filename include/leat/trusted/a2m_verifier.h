// The client of an attested append-only memory: believes nothing that a host shows of its logs but
// what the kernel attested, and learns by nonces how far they go now.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "leat/export.h"
#include "leat/trusted/a2m.h"

namespace leat::trusted {

// What became of something shown by a host. All but kOk, kBeyondTail and kUnavailable come of no
// correct host that lost nothing; an honest one that crashed shows kMissing.
enum class Finding : std::uint8_t {
  kOk,
  kNotAttested,    // no entry, or not as the log's kernel attested it
  kOtherLog,       // an entry of another log
  kOtherIndex,     // another entry of the log
  kForgotten,      // an entry below the head
  kBeyondTail,     // attested since the bounds were learnt: learn them again
  kFalseStatus,    // says forgotten or unassigned of what is neither
  kMissing,        // an index between head and tail without its entry
  kStale,          // not the outstanding nonce: an old answer
  kBadTruncation,  // the head lowered or beyond the tail, a nonce used twice, no truncation at all
  kDigest,         // the cumulative digest is not that of the entries before
  kBoundsUnknown,  // learn_bounds() of this log first
  kUnavailable,    // the own kernel does not answer, or has no such session
};
LEAT_EXPORT std::string_view to_string(Finding finding) noexcept;

// Algorithm 2's check of an entry that a lookup gave, by itself: attested, of this log, with this
// index, and head <= index < tail.
LEAT_EXPORT Finding verify_lookup(AttestationKernel& kernel, std::uint32_t log, std::uint64_t index,
                                  std::span<const std::byte> record, LogBounds bounds);

// Owner: the caller; `kernel`, this client's own, outlives it and has the logs' sessions
// (Role::kGroupReceiver, or kLog if it is the very kernel that attests). Threads: one at a time.
// Memory: a few words for each log, and the nonce of each truncation.
class LEAT_EXPORT A2mVerifier {
 public:
  // How the host is asked for an entry. What it throws goes through.
  using Lookup =
      std::function<LookupStatus(std::uint32_t log, std::uint64_t index, Record& record)>;

  A2mVerifier(AttestationKernel& kernel, std::uint32_t manifest);
  A2mVerifier(A2mVerifier&&) noexcept;
  A2mVerifier& operator=(A2mVerifier&&) noexcept;
  ~A2mVerifier();

  // A fresh nonce, for one end() of a log and of the MANIFEST, or for one truncation. At most
  // kMostChallenges are outstanding; older ones are no longer answered. Throws leat::Error kSystem.
  static constexpr std::size_t kMostChallenges = 64;
  Nonce challenge();

  // `end` and `manifest_end`: what the host's end() of the log and of the MANIFEST returned for a
  // challenge. Reads the part of the MANIFEST that is new to this client; a gap in it is a lie.
  // Nothing is learnt unless it returns kOk, and then the challenge is over.
  Finding learn_bounds(std::uint32_t log, std::span<const std::byte> end,
                       std::span<const std::byte> manifest_end, const Lookup& lookup);
  // As of the last learn_bounds().
  std::optional<LogBounds> bounds(std::uint32_t log) const;

  // What a lookup answered, status and entry, against the bounds that were learnt.
  Finding verify_lookup(std::uint32_t log, std::uint64_t index, LookupStatus status,
                        std::span<const std::byte> record) const;

  // What truncate(log, head, nonce) returned, the nonce from challenge(), which is then over.
  Finding verify_truncation(std::uint32_t log, std::uint64_t head,
                            std::span<const std::byte> record);

  // Every entry from head to tail is there, and the cumulative digests, in a log that has them, are
  // right. `bad`, if not null, receives the index of the first that is not.
  Finding verify_all(std::uint32_t log, const Lookup& lookup, std::uint64_t* bad = nullptr) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace leat::trusted
