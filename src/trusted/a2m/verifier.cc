#include "leat/trusted/a2m_verifier.h"

#include <openssl/rand.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "leat/error.h"
#include "trusted/a2m/entry.h"

namespace leat::trusted {
namespace {

bool is_nonce(const Entry& entry, const Nonce& nonce) {
  return std::ranges::equal(entry.context, nonce);
}

// The entry that `record` is, if it is one of `log` and attested.
Finding read_attested(AttestationKernel& kernel, std::uint32_t log,
                      std::span<const std::byte> record, std::optional<Entry>& entry) {
  entry = read_entry(record);
  if (!entry) return Finding::kNotAttested;
  const Verdict verdict = kernel.verify_stateless(record, Kind::kLog);
  if (is_unjudged(verdict)) return Finding::kUnavailable;
  if (verdict == Verdict::kOk) return entry->log == log ? Finding::kOk : Finding::kOtherLog;
  // Not this client's: another log for sure, unless it was not provisioned with the right one.
  if (verdict == Verdict::kSession)
    return entry->log == log ? Finding::kUnavailable : Finding::kOtherLog;
  return Finding::kNotAttested;
}

}  // namespace

std::string_view to_string(Finding finding) noexcept {
  switch (finding) {
    case Finding::kOk:
      return "ok";
    case Finding::kNotAttested:
      return "not an entry as the log's kernel attested it";
    case Finding::kOtherLog:
      return "an entry of another log";
    case Finding::kOtherIndex:
      return "another entry of the log";
    case Finding::kForgotten:
      return "an entry that was forgotten";
    case Finding::kForgottenSince:
      return "forgotten since the bounds of the log were learnt, if the host is honest";
    case Finding::kBeyondTail:
      return "attested since the bounds of the log were learnt";
    case Finding::kFalseStatus:
      return "a false word about an entry that exists";
    case Finding::kMissing:
      return "an entry that was attested is not shown";
    case Finding::kStale:
      return "an old answer: not the nonce that was asked with";
    case Finding::kBadTruncation:
      return "a truncation that must not be";
    case Finding::kDigest:
      return "the cumulative digest is not that of the entries before";
    case Finding::kBoundsUnknown:
      return "the bounds of the log are not known yet";
    case Finding::kUnavailable:
      return "the own kernel cannot verify the log";
  }
  return "unknown";
}

Finding verify_lookup(AttestationKernel& kernel, std::uint32_t log, std::uint64_t index,
                      std::span<const std::byte> record, LogBounds bounds) {
  std::optional<Entry> entry;
  const Finding found = read_attested(kernel, log, record, entry);
  if (found != Finding::kOk) return found;
  if (entry->index != index) return Finding::kOtherIndex;
  if (index < bounds.head) return Finding::kForgotten;
  return index < bounds.tail ? Finding::kOk : Finding::kBeyondTail;
}

struct A2mVerifier::State {
  static constexpr const char* kWhenEmpty = "this verifier was moved from";
  State(AttestationKernel& own, std::uint32_t manifest_log) : kernel(own), manifest(manifest_log) {}

  struct Truncated {
    std::uint64_t head = 0;
    std::uint64_t next = 0;  // the index after that of its entry
  };
  // What the MANIFEST says, as far as it was read.
  struct Manifest {
    std::uint64_t read = 0;
    std::map<std::uint32_t, Truncated> logs;
    std::set<Nonce> nonces;  // of truncations
  };

  std::optional<Nonce> outstanding(const Entry& entry) const {
    const auto found = std::ranges::find_if(
        challenges, [&](const Nonce& nonce) { return is_nonce(entry, nonce); });
    if (found == challenges.end()) return std::nullopt;
    return *found;
  }
  void answered(const Nonce& nonce) { std::erase(challenges, nonce); }
  Finding read_manifest(std::uint64_t tail, const Lookup& lookup, Manifest& seen) const;

  AttestationKernel& kernel;
  const std::uint32_t manifest;
  std::deque<Nonce> challenges;
  Manifest known;
  std::map<std::uint32_t, LogBounds> bounds;
};

A2mVerifier::A2mVerifier(AttestationKernel& kernel, std::uint32_t manifest)
    : state_(std::make_unique<State>(kernel, manifest)) {}
A2mVerifier::A2mVerifier(A2mVerifier&&) noexcept = default;
A2mVerifier& A2mVerifier::operator=(A2mVerifier&&) noexcept = default;
A2mVerifier::~A2mVerifier() = default;

Nonce A2mVerifier::challenge() {
  Nonce nonce;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), nonce.size()) != 1)
    throw Error(ErrorCode::kSystem, "OpenSSL has no random bytes", "Check its configuration.");
  if (state_->challenges.size() == kMostChallenges) state_->challenges.pop_front();
  state_->challenges.push_back(nonce);
  return nonce;
}

// From where `seen` was read to `tail`.
Finding A2mVerifier::State::read_manifest(std::uint64_t tail, const Lookup& lookup,
                                          Manifest& seen) const {
  Record record;
  for (; seen.read < tail; ++seen.read) {
    if (lookup(manifest, seen.read, record) != LookupStatus::kAssigned) return Finding::kMissing;
    std::optional<Entry> entry;
    if (const Finding found = read_attested(kernel, manifest, record, entry); found != Finding::kOk)
      return found;
    if (entry->index != seen.read) return Finding::kOtherIndex;
    if (entry->kind == EntryKind::kEnd) continue;
    if (entry->kind != EntryKind::kManifest) return Finding::kBadTruncation;

    const auto truncation = read_entry(entry->context);
    if (!truncation || truncation->kind != EntryKind::kTruncation) return Finding::kBadTruncation;
    const Verdict verdict = kernel.verify_stateless(entry->context, Kind::kLog);
    // A log of which this client has no key concerns others.
    if (verdict == Verdict::kSession) continue;
    if (is_unjudged(verdict)) return Finding::kUnavailable;
    if (verdict != Verdict::kOk) return Finding::kNotAttested;
    Truncated& truncated = seen.logs[truncation->log];
    Nonce nonce;
    std::ranges::copy(truncation->context, nonce.begin());
    if (truncation->head < truncated.head || truncation->head > truncation->index ||
        truncation->index < truncated.next || !seen.nonces.insert(nonce).second)
      return Finding::kBadTruncation;
    truncated = {truncation->head, truncation->index + 1};
  }
  return Finding::kOk;
}

Finding A2mVerifier::learn_bounds(std::uint32_t log, std::span<const std::byte> end,
                                  std::span<const std::byte> manifest_end, const Lookup& lookup) {
  std::optional<Entry> of_log;
  std::optional<Entry> of_manifest;
  Finding found = read_attested(state_->kernel, log, end, of_log);
  if (found != Finding::kOk) return found;
  found = read_attested(state_->kernel, state_->manifest, manifest_end, of_manifest);
  if (found != Finding::kOk) return found;
  const auto nonce = state_->outstanding(*of_log);
  if (of_log->kind != EntryKind::kEnd || of_manifest->kind != EntryKind::kEnd || !nonce ||
      !is_nonce(*of_manifest, *nonce))
    return Finding::kStale;

  State::Manifest seen = state_->known;
  found = state_->read_manifest(of_manifest->index, lookup, seen);
  if (found != Finding::kOk) return found;
  const LogBounds bounds{seen.logs[log].head, of_log->index + 1};
  if (bounds.head > bounds.tail) return Finding::kBadTruncation;
  state_->known = std::move(seen);
  state_->bounds[log] = bounds;
  state_->answered(*nonce);
  return Finding::kOk;
}

std::optional<LogBounds> A2mVerifier::bounds(std::uint32_t log) const {
  const auto found = state_->bounds.find(log);
  if (found == state_->bounds.end()) return std::nullopt;
  return found->second;
}

Finding A2mVerifier::verify_lookup(std::uint32_t log, std::uint64_t index, LookupStatus status,
                                   std::span<const std::byte> record) const {
  const auto known = bounds(log);
  if (!known) return Finding::kBoundsUnknown;
  switch (status) {
    case LookupStatus::kAssigned:
      return trusted::verify_lookup(state_->kernel, log, index, record, *known);
    case LookupStatus::kForgotten:
      return index < known->head ? Finding::kOk : Finding::kForgottenSince;
    case LookupStatus::kUnassigned:
      return index >= known->tail ? Finding::kOk : Finding::kFalseStatus;
    case LookupStatus::kLost:
      break;
  }
  return Finding::kMissing;
}

Finding A2mVerifier::verify_truncation(std::uint32_t log, std::uint64_t head,
                                       std::span<const std::byte> record) {
  std::optional<Entry> entry;
  Finding found = read_attested(state_->kernel, state_->manifest, record, entry);
  if (found != Finding::kOk) return found;
  if (entry->kind != EntryKind::kManifest) return Finding::kBadTruncation;
  std::optional<Entry> truncation;
  found = read_attested(state_->kernel, log, entry->context, truncation);
  if (found != Finding::kOk) return found;
  const auto nonce = state_->outstanding(*truncation);
  if (!nonce) return Finding::kStale;
  if (truncation->kind != EntryKind::kTruncation || truncation->head != head ||
      head > truncation->index)
    return Finding::kBadTruncation;
  state_->answered(*nonce);
  return Finding::kOk;
}

Finding A2mVerifier::verify_all(std::uint32_t log, const Lookup& lookup, std::uint64_t* bad) const {
  const auto known = bounds(log);
  if (!known) return Finding::kBoundsUnknown;
  detail::Digester digester;
  // Of the entry before; unknown where forgotten ones come before.
  std::optional<detail::Digest> previous;
  if (known->head == 0) previous = detail::Digest{};
  std::optional<bool> digests;
  Record record;
  for (std::uint64_t index = known->head; index < known->tail; ++index) {
    if (bad != nullptr) *bad = index;
    const LookupStatus status = lookup(log, index, record);
    const Finding found = verify_lookup(log, index, status, record);
    if (found != Finding::kOk) return found;
    const Entry entry = *read_entry(record);
    // A log has digests in all its entries or in none.
    if (!digests) digests = !entry.digest.empty();
    if (*digests == entry.digest.empty()) return Finding::kDigest;
    if (!*digests) continue;
    detail::Digest digest;
    if (previous) {
      digester.digest(index, entry.kind, entry.head, *previous, entry.context, digest);
      if (!std::ranges::equal(digest, entry.digest)) return Finding::kDigest;
    }
    std::ranges::copy(entry.digest, digest.begin());
    previous = digest;
  }
  return Finding::kOk;
}

}  // namespace leat::trusted
