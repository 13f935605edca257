// The client of an attested append-only memory. It believes only what the attestor of the log
// attested, and learns by nonces how far the logs extend now.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "leat/export.h"
#include "leat/held.h"
#include "leat/trusted/a2m.h"

namespace leat::trusted {

// The verdict on something that a host showed. A correct host that lost nothing causes only kOk,
// kForgottenSince, kBeyondTail, kUnavailable and kBoundsUnknown; an honest one that crashed may
// also cause kMissing.
enum class Finding : std::uint8_t {
  kOk,
  kNotAttested,     // no entry, or not as the log's attestor attested it
  kOtherLog,        // belongs to another log
  kOtherIndex,      // has another index in this log
  kForgotten,       // an entry below the head
  kForgottenSince,  // the host calls an entry forgotten that was not when the bounds were learnt:
                    // learn them again; if it exists still, the host has lied
  kBeyondTail,      // appended after the bounds were learnt: learn them again
  kFalseStatus,     // the host calls an existing entry unassigned
  kMissing,         // the host lacks an entry between head and tail
  kStale,           // for no outstanding nonce: an old answer, or an expired challenge
  kBadTruncation,   // lowers the head or exceeds the tail, repeats a nonce, or is not a truncation
  kDigest,          // the cumulative digest does not match the entries before it
  kBoundsUnknown,   // call learn_bounds() for this log first
  kUnavailable,     // the client's attestor does not answer or lacks the session
};
LEAT_EXPORT std::string_view to_string(Finding finding) noexcept;

// The check of algorithm 2 for a single entry that a lookup returned: it is attested, belongs to
// this log, has this index, and head <= index < tail.
LEAT_EXPORT Finding verify_lookup(AttestationKernel& kernel, std::uint32_t log, std::uint64_t index,
                                  std::span<const std::byte> record, LogBounds bounds);

// Owner: the caller. `kernel`, the client's own attestor, outlives it and has the logs' sessions
// (Role::kGroupReceiver, or kLog if it is the attestor that attests them). Threads: one at a time.
// Memory: a few words for each log, and the nonce of each truncation.
class LEAT_EXPORT A2mVerifier {
 public:
  // Asks the host for an entry. Its exceptions pass through.
  using Lookup =
      std::function<LookupStatus(std::uint32_t log, std::uint64_t index, Record& record)>;

  A2mVerifier(AttestationKernel& kernel, std::uint32_t manifest);
  A2mVerifier(A2mVerifier&&) noexcept;
  A2mVerifier& operator=(A2mVerifier&&) noexcept;
  ~A2mVerifier();

  // Returns a fresh nonce: for one end() of a log and of the MANIFEST, or for one truncation. At
  // most kMostChallenges are outstanding; the oldest one then becomes invalid. Throws leat::Error
  // kSystem.
  static constexpr std::size_t kMostChallenges = 64;
  Nonce challenge();

  // `end` and `manifest_end` are what the host's end() returned for the log and for the MANIFEST,
  // for the same challenge. Reads the part of the MANIFEST that this client has not read yet; a gap
  // in it is a lie. On kOk learns the bounds and ends the challenge; otherwise changes nothing.
  Finding learn_bounds(std::uint32_t log, std::span<const std::byte> end,
                       std::span<const std::byte> manifest_end, const Lookup& lookup);
  // The bounds that the last learn_bounds() learnt; no value before it.
  std::optional<LogBounds> bounds(std::uint32_t log) const;

  // Checks what a lookup returned, status and entry, against the bounds that were learnt.
  Finding verify_lookup(std::uint32_t log, std::uint64_t index, LookupStatus status,
                        std::span<const std::byte> record) const;

  // Checks what the host's truncate(log, head, nonce) returned. The nonce is from challenge(), and
  // ends with kOk.
  Finding verify_truncation(std::uint32_t log, std::uint64_t head,
                            std::span<const std::byte> record);

  // Checks that every entry from head to tail exists and that the cumulative digests, if the log
  // has them, are right. If that fails, `bad`, unless null, receives the index of the first entry
  // at fault.
  Finding verify_all(std::uint32_t log, const Lookup& lookup, std::uint64_t* bad = nullptr) const;

 private:
  struct LEAT_HIDDEN State;
  leat::detail::Held<std::unique_ptr<State>> state_;
};

}  // namespace leat::trusted
