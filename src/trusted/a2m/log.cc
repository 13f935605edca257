#include "trusted/a2m/log.h"

#include <algorithm>
#include <cstring>

#include "attest/record.h"
#include "base/wire.h"
#include "leat/error.h"
#include "trusted/a2m/file.h"

namespace leat::trusted::detail {
namespace {

using leat::detail::WireReader;

// A slot: what differs from entry to entry in a record's header, as it is there, the MAC without
// its padding, the payload. In place of the counter there is the index plus one, the mark, written
// last: a reader that sees it sees the rest.
constexpr std::size_t kMarkOffset = 0, kBytesOffset = 8, kKindOffset = 12, kHeadOffset = 16,
                      kMacOffset = 24;
// Where a record's header has its counter, and behind it the rest of what a slot begins with.
constexpr std::size_t kCounterOffset = 24;

template <typename T>
T load(const std::byte* from) {
  return WireReader({from, sizeof(T)}).number<T>();
}

template <typename T>
void store(std::byte* to, T value) {
  leat::detail::WireWriter({to, sizeof(T)}).number(value);
}

Session session_of(AttestationKernel& kernel, const LogOptions& options) {
  const auto session = kernel.session(options.session);
  const std::string name = "session " + std::to_string(options.session);
  if (!session)
    throw Error(ErrorCode::kInvalidArgument, "the kernel has no " + name + " for a log",
                "Provision it, and enable the kernel.");
  if (session->role == Role::kPair)
    throw Error(ErrorCode::kInvalidArgument, name + " is one of a pair, and cannot be a log",
                "Provision logs with Role::kLog, or kGroupSender and kGroupReceiver.");
  return *session;
}

std::size_t payload_bytes_of(const LogOptions& options, AttestationKernel& kernel) {
  constexpr std::size_t kMostContextBytes = std::size_t{1} << 20;
  if (options.max_context_bytes == 0 || options.max_context_bytes > kMostContextBytes)
    throw Error(ErrorCode::kInvalidArgument,
                "max_context_bytes " + std::to_string(options.max_context_bytes) +
                    " is not between 1 and " + std::to_string(kMostContextBytes),
                "Append digests of what is larger.");
  const std::size_t bytes =
      std::max(options.max_context_bytes, Nonce{}.size()) + (options.digests ? kDigestBytes : 0);
  if (bytes > kernel.max_payload_bytes())
    throw Error(ErrorCode::kTooLarge, "the kernel attests no " + std::to_string(bytes) + " bytes",
                "Make max_context_bytes smaller.");
  return bytes;
}

void check_attested(Verdict verdict, std::uint32_t log) {
  if (verdict == Verdict::kOk) return;
  throw Error(ErrorCode::kUnavailable,
              "the kernel refuses to attest an entry of log " + std::to_string(log) + ": " +
                  std::string(to_string(verdict)),
              "Without its kernel a log can only be read.");
}

}  // namespace

Log::Log(AttestationKernel& kernel, const LogOptions& options, const std::string& folder)
    : kernel_(kernel),
      options_(options),
      session_(session_of(kernel, options)),
      writable_(session_.role != Role::kGroupReceiver),
      mac_bytes_(detail::mac_bytes(session_.algorithm)),
      max_payload_bytes_(payload_bytes_of(options, kernel)),
      slot_bytes_((kMacOffset + mac_bytes_ + max_payload_bytes_ + 7) / 8 * 8) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 46;
  if (options.max_entries == 0 || options.max_entries > kMostBytes / slot_bytes_)
    throw Error(ErrorCode::kInvalidArgument,
                "max_entries " + std::to_string(options.max_entries) + " is 0, or more than " +
                    std::to_string(kMostBytes >> 40) + " TiB of address space",
                "Begin another log instead.");
  write_header({.algorithm = session_.algorithm,
                .kind = Kind::kLog,
                .session = session_.id,
                .device = writable_ ? kernel.device() : session_.peer,
                .epoch = kernel.epoch()},
               header_);
  if (options.digests) digester_.emplace();
  const std::size_t most_bytes = kFileHeaderBytes + options.max_entries * slot_bytes_;
  if (folder.empty()) {
    storage_ = std::make_unique<A2mStorage>(most_bytes);
    storage_->grow(kFileHeaderBytes);
    return;
  }
  const LogFile file{.session = session_,
                     .device = writable_ ? kernel.device() : session_.peer,
                     .epoch = kernel.epoch(),
                     .digests = options.digests,
                     .payload_bytes = static_cast<std::uint32_t>(max_payload_bytes_),
                     .slot_bytes = static_cast<std::uint32_t>(slot_bytes_)};
  const std::string path = path_of_log(folder, session_.id);
  if (writable_) new_file_ = make_log_file(path, file);
  storage_ = std::make_unique<A2mStorage>(
      path, most_bytes, writable_ ? A2mStorage::Access::kWrite : A2mStorage::Access::kRead);
  check_log_file(path, {storage_->data(), std::min(storage_->size(), kFileHeaderBytes)}, file);
}

Log::~Log() {
  if (made_here_ && recovered_ && !held_) set_checkpoint(tail_.load(std::memory_order_relaxed));
}

std::atomic_ref<std::uint64_t> Log::word(std::size_t offset) const {
  // Aligned: the memory begins with a page, header and slots are multiples of 8.
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(storage_->data() + offset));
}

std::byte* Log::slot(std::uint64_t index) const {
  return storage_->data() + kFileHeaderBytes + index * slot_bytes_;
}

std::uint64_t Log::slots_there() const {
  return (storage_->size() - kFileHeaderBytes) / slot_bytes_;
}

// Two copies, one inverted, and the smaller counts: a crash between them, or a changed bit in one,
// makes the next opening verify more, never less.
void Log::set_checkpoint(std::uint64_t index) {
  word(kCheckpointOffset).store(index, std::memory_order_relaxed);
  word(kCheckpointCopyOffset).store(~index, std::memory_order_relaxed);
}

std::uint64_t Log::checkpoint(std::uint64_t tail) const {
  const std::uint64_t index =
      std::min(word(kCheckpointOffset).load(std::memory_order_relaxed),
               ~word(kCheckpointCopyOffset).load(std::memory_order_relaxed));
  return index <= tail ? index : 0;
}

LogBounds Log::bounds() const {
  // The head first: it never passes the tail that is read after it.
  const std::uint64_t head = head_.load(std::memory_order_acquire);
  return {head, tail_.load(std::memory_order_acquire)};
}

bool Log::copy_slot(std::uint64_t index, Record& record) const {
  // Attested, and behind the end of a file that was cut or put back: lost.
  if (kFileHeaderBytes + (index + 1) * slot_bytes_ > storage_->size()) return false;
  std::byte* const from = slot(index);
  // Acquire, with the release of append: the slot is whole.
  const auto mark = std::atomic_ref(*reinterpret_cast<std::uint64_t*>(from + kMarkOffset))
                        .load(std::memory_order_acquire);
  const auto bytes = load<std::uint32_t>(from + kBytesOffset);
  if (mark != index + 1 || bytes > max_payload_bytes_) return false;
  record.resize(kRecordOverheadBytes + bytes);
  std::byte* const header = record.data();
  std::memcpy(header, header_.data(), kHeaderBytes);
  store(header + kCounterOffset, index);
  std::memcpy(header + kCounterOffset + kBytesOffset, from + kBytesOffset,
              kMacOffset - kBytesOffset);
  std::byte* const payload = header + kHeaderBytes;
  std::memcpy(payload, from + kMacOffset + mac_bytes_, bytes);
  std::memcpy(payload + bytes, from + kMacOffset, mac_bytes_);
  std::memset(payload + bytes + mac_bytes_, 0, kMacSlotBytes - mac_bytes_);
  return true;
}

LookupStatus Log::lookup(std::uint64_t index, Record& record) const {
  if (index >= tail_.load(std::memory_order_acquire)) return LookupStatus::kUnassigned;
  if (index < head_.load(std::memory_order_acquire)) return LookupStatus::kForgotten;
  const bool there = copy_slot(index, record);
  // Again: a truncation may have taken the memory under the copy. It moves the head first.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (index < head_.load(std::memory_order_relaxed)) return LookupStatus::kForgotten;
  return there ? LookupStatus::kAssigned : LookupStatus::kLost;
}

std::uint64_t Log::append(EntryKind kind, std::uint64_t head, std::span<const std::byte> context,
                          Record* record) {
  check_here();
  const std::string name = "log " + std::to_string(id());
  if (!writable_)
    throw Error(ErrorCode::kInvalidArgument, name + " is open for reading only",
                "Only the device that attests it can append.");
  const std::size_t most =
      kind == EntryKind::kContext ? options_.max_context_bytes : max_payload_bytes_;
  if (context.size() > most)
    throw Error(ErrorCode::kTooLarge,
                "a context of " + std::to_string(context.size()) + " bytes, " + name + " takes " +
                    std::to_string(most),
                "Make its max_context_bytes larger, or append a digest.");
  const std::lock_guard lock(mutex_);
  const std::uint64_t index = tail_.load(std::memory_order_relaxed);
  if (index >= options_.max_entries)
    throw Error(
        ErrorCode::kTooLarge,
        name + " is full: max_entries " + std::to_string(options_.max_entries) + " are attested",
        "Begin another log.");
  // Room before the kernel gives a number away.
  if (index >= slots_there()) storage_->grow(kFileHeaderBytes + (index + 1) * slot_bytes_);
  // All before are whole. Now, not after this entry, which may be the first half of a truncation.
  if (index % kCheckpointEntries == 0 && !held_) set_checkpoint(index);

  std::span<const std::byte> payload = context;
  std::uint32_t slot_kind = static_cast<std::uint32_t>(kind);
  Digest digest;
  if (digester_) {
    digester_->digest(index, kind, head, last_digest_, context, digest);
    payload_.assign(digest.begin(), digest.end());
    payload_.insert(payload_.end(), context.begin(), context.end());
    payload = payload_;
    slot_kind |= kDigestFlag;
  }
  Proof proof;
  check_attested(
      kernel_.attest({.session = id(), .kind = Kind::kLog, .slot = slot_kind, .offset = head},
                     payload, proof),
      id());
  if (load<std::uint64_t>(proof.header.data() + kCounterOffset) != index) {
    tail_.store(kernel_.counters(id(), 0)->next_sent, std::memory_order_release);
    throw Error(ErrorCode::kInvalidArgument,
                "somebody else attests in the session of " + name + ": its numbers are lost to it",
                "Give each log a session of its own.");
  }
  std::byte* const to = slot(index);
  std::copy(payload.begin(), payload.end(), to + kMacOffset + mac_bytes_);
  std::memcpy(to + kMacOffset, proof.mac.data(), mac_bytes_);
  store(to + kHeadOffset, head);
  store(to + kBytesOffset, static_cast<std::uint32_t>(payload.size()));
  store(to + kKindOffset, slot_kind);
  std::atomic_ref(*reinterpret_cast<std::uint64_t*>(to + kMarkOffset))
      .store(index + 1, std::memory_order_release);
  word(kTailOffset).store(index + 1, std::memory_order_release);
  if (digester_) last_digest_ = digest;
  tail_.store(index + 1, std::memory_order_release);
  if (record != nullptr) (void)copy_slot(index, *record);
  return index;
}

void Log::hold_checkpoint(bool hold) {
  const std::lock_guard lock(mutex_);
  held_ = hold;
}

void Log::forget(std::uint64_t head) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t before = head_.load(std::memory_order_relaxed);
  head_.store(head, std::memory_order_release);
  // Sequentially consistent with the fence of lookup: no zeros pass for an entry.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  storage_->release(kFileHeaderBytes + before * slot_bytes_,
                    kFileHeaderBytes + std::min(head, slots_there()) * slot_bytes_);
}

void Log::check_here() const {
  if (!made_here_)
    throw Error(
        ErrorCode::kClosed,
        "log " + std::to_string(id()) + " belongs to the process that this one was forked from",
        "Open logs after fork().");
}

void Log::sync() {
  check_here();
  const std::lock_guard lock(mutex_);
  if (!writable_) return;
  storage_->sync();
  if (held_) return;
  set_checkpoint(tail_.load(std::memory_order_relaxed));
  storage_->sync();
}

bool Log::verifies(std::uint64_t index, const Record& record) const {
  const Verdict verdict = kernel_.verify_stateless(record, Kind::kLog);
  if (is_unjudged(verdict))
    throw Error(ErrorCode::kUnavailable,
                "the kernel does not verify entry " + std::to_string(index) + " of log " +
                    std::to_string(id()) + ": " + std::string(to_string(verdict)),
                "Start it, and try again.");
  return verdict == Verdict::kOk;
}

Recovery Log::check(std::uint64_t first, const std::function<void(const Entry&)>& found,
                    const std::function<void(std::uint64_t)>& lost) const {
  const auto [head, tail] = bounds();
  Recovery report{.log = id(), .bounds = {head, tail}, .new_file = new_file_};
  report.verified_from = std::max(first, head);
  const auto lose = [&report](std::uint64_t index, std::uint64_t count) {
    report.lost += count;
    auto& ranges = report.lost_ranges;
    if (!ranges.empty() && ranges.back().first + ranges.back().count == index)
      ranges.back().count += count;
    else if (ranges.size() < Recovery::kMostRanges)
      ranges.push_back({index, count});
  };
  const std::uint64_t there = std::min(tail, slots_there());
  Record record;
  for (std::uint64_t index = report.verified_from; index < there; ++index) {
    std::optional<Entry> entry;
    if (copy_slot(index, record) && verifies(index, record)) entry = read_entry(record);
    if (entry) {
      if (found) found(*entry);
      continue;
    }
    lose(index, 1);
    if (lost) lost(index);
  }
  if (there < tail)
    lose(std::max(there, report.verified_from), tail - std::max(there, report.verified_from));
  return report;
}

// The number of entries that the kernel attested, or, for a reader only, that the file names.
std::uint64_t Log::check_counter() const {
  const std::uint64_t in_file = word(kTailOffset).load(std::memory_order_acquire);
  if (!writable_) return std::min(in_file, slots_there());
  const auto counters = kernel_.counters(id(), 0);
  if (!counters)
    throw Error(ErrorCode::kUnavailable, "the kernel does not say where a log stands",
                "Start it, and try again.");
  const std::uint64_t attested = counters->next_sent;
  Record record;
  if (in_file > attested && in_file <= slots_there() && copy_slot(in_file - 1, record) &&
      verifies(in_file - 1, record))
    throw Error(ErrorCode::kInvalidArgument,
                "the kernel counts " + std::to_string(attested) + " entries of log " +
                    std::to_string(id()) + ", and the file has " + std::to_string(in_file) +
                    ", well attested: a kernel that started again with the keys of this epoch",
                "It would attest other entries with the same numbers. Provision a new epoch.");
  if (attested > options_.max_entries)
    throw Error(ErrorCode::kTooLarge,
                "log " + std::to_string(id()) + " has " + std::to_string(attested) +
                    " entries, more than max_entries",
                "Open it with as many as it was made for.");
  return attested;
}

Recovery Log::recover(std::uint64_t head, bool check_all,
                      const std::function<void(const Entry&)>& seen) {
  const std::uint64_t tail = check_counter();
  tail_.store(tail, std::memory_order_release);
  head_.store(std::min(head, tail), std::memory_order_release);
  // Nothing was verified of what the file does not have any more.
  const std::size_t found = std::max(storage_->found_bytes(), kFileHeaderBytes);
  const std::uint64_t from =
      std::min<std::uint64_t>(checkpoint(tail), (found - kFileHeaderBytes) / slot_bytes_);
  Recovery report = check(check_all ? 0 : from, seen, [this](std::uint64_t index) {
    // An entry that is not as the kernel attested it is marked as none.
    if (writable_) store(slot(index) + kMarkOffset, std::uint64_t{0});
  });
  if (!writable_) return report;
  storage_->release(kFileHeaderBytes,
                    kFileHeaderBytes + std::min(head, slots_there()) * slot_bytes_);
  word(kTailOffset).store(tail, std::memory_order_release);
  if (options_.digests) remember_last_digest();
  recovered_ = true;
  return report;
}

void Log::remember_last_digest() {
  Record record;
  const auto [head, tail] = bounds();
  for (std::uint64_t index = std::min(tail, slots_there()); index > head; --index) {
    if (!copy_slot(index - 1, record)) continue;
    const auto entry = read_entry(record);
    if (!entry || entry->digest.empty()) continue;
    std::ranges::copy(entry->digest, last_digest_.begin());
    return;
  }
}

}  // namespace leat::trusted::detail
