// The trusted base: this file, mac.cc, record.cc, base/secret_memory.cc and base/fork.cc, on
// OpenSSL's EVP_MAC, EVP_KDF and CRYPTO_memcmp, and the C++ library's mutex, vector and allocation.
// Nothing else decides what is attested or accepted.
#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <vector>

#include "attest/keystore.h"
#include "attest/record.h"
#include "base/wire.h"
#include "leat/attest/attestation.h"
#include "leat/error.h"

namespace leat::trusted {

using detail::Direction;
using detail::Entry;
using detail::MacSlot;

namespace {

// Of different lengths and first bytes, so that no purpose is another's beginning.
std::vector<std::byte> purpose_of(const Session& session, std::uint64_t epoch, std::uint32_t from,
                                  std::uint32_t to) {
  std::vector<std::byte> purpose(32);
  leat::detail::WireWriter writer(purpose);
  writer.text("leatkey", 7);
  // A group's receivers have another role than its sender, and the same keys.
  const Role kind = session.role == Role::kGroupReceiver ? Role::kGroupSender : session.role;
  writer.number(static_cast<std::uint8_t>(kind));
  writer.number(static_cast<std::uint8_t>(session.algorithm));
  writer.number(session.streams);
  writer.bytes({}, 2);
  writer.number(epoch);
  writer.number(session.id);
  writer.number(from);
  writer.number(to);
  return purpose;
}

bool consistent(const Session& session, std::uint32_t device) {
  const bool pair = session.role == Role::kPair;
  const bool receives = pair || session.role == Role::kGroupReceiver;
  return session.role >= Role::kPair && session.role <= Role::kLog &&
         detail::is_algorithm(session.algorithm) && session.streams >= 1 &&
         session.streams <= (pair ? kStreams : 1) &&
         (receives ? session.peer != 0 && session.peer != device : session.peer == 0);
}

// Takes the payload's or the record's turn: true for the last counter too, and never again.
void advance(detail::Count& count) {
  if (count.next == std::numeric_limits<std::uint64_t>::max())
    count.exhausted = true;
  else
    ++count.next;
}

}  // namespace

LocalKernel::LocalKernel(std::uint32_t device, std::uint64_t epoch, std::uint64_t last_epoch)
    : device_(device), epoch_(epoch), keystore_(std::make_unique<Keystore>()) {
  if (device == 0)
    throw Error(ErrorCode::kInvalidArgument, "an attestation device has the number 0",
                "Number devices from 1.");
  if (epoch <= last_epoch)
    throw Error(ErrorCode::kInvalidArgument,
                "epoch " + std::to_string(epoch) + " is not above the last one, " +
                    std::to_string(last_epoch),
                "Counters of an epoch begin once: provision a new one.");
}

LocalKernel::~LocalKernel() = default;

Verdict LocalKernel::provision(const Session& session) noexcept try {
  if (!keystore_->is_here()) return Verdict::kForked;
  const std::lock_guard lock(keystore_->provisioning);
  if (keystore_->enabled.load(std::memory_order_relaxed)) return Verdict::kSealed;
  if (!consistent(session, device_)) return Verdict::kBadSession;
  if (session.key.size() < kMinKeyBytes || session.key.size() > kMaxKeyBytes)
    return Verdict::kBadKey;

  auto entry = std::make_unique<Entry>();
  entry->session = session;
  entry->session.key = {};
  // Equal for equal keys, and so detects a duplicate without revealing anything of the key.
  detail::derive_key(session.key, std::as_bytes(std::span("leat key's mark")), entry->key_mark);
  const auto place = keystore_->place_of(session.id);
  if (keystore_->find(session.id) != nullptr || keystore_->has_key(entry->key_mark))
    return Verdict::kDuplicate;

  const auto key = keystore_->scratch.span().first(detail::derived_key_bytes(session.algorithm));
  const auto make = [&](std::uint32_t from, std::uint32_t to) {
    detail::derive_key(session.key, purpose_of(session, epoch_, from, to), key);
    auto direction = std::make_unique<Direction>(session.algorithm, key);
    keystore_->scratch.wipe();
    return direction;
  };
  if (session.role != Role::kGroupReceiver) entry->out = make(device_, session.peer);
  if (session.role == Role::kPair) entry->in = make(session.peer, device_);
  if (session.role == Role::kGroupReceiver) entry->in = make(session.peer, 0);
  keystore_->entries.insert(place, std::move(entry));
  return Verdict::kOk;
} catch (const std::exception&) {
  return Verdict::kUnavailable;
}

Verdict LocalKernel::enable() noexcept try {
  if (!keystore_->is_here()) return Verdict::kForked;
  const std::lock_guard lock(keystore_->provisioning);
  for (const auto& entry : keystore_->entries) {
    if (entry->session.role != Role::kGroupReceiver) continue;
    for (const auto& other : keystore_->entries)
      if (other->session.role == Role::kPair && other->session.peer == entry->session.peer)
        other->peer_has_group = true;
  }
  // Release: a thread that sees it enabled sees the sessions, which never change again.
  keystore_->enabled.store(true, std::memory_order_release);
  return Verdict::kOk;
} catch (const std::exception&) {
  return Verdict::kUnavailable;
}

Verdict LocalKernel::attest(const Statement& statement, std::span<const std::byte> payload,
                            Proof& proof) noexcept try {
  if (!keystore_->is_here()) return Verdict::kForked;
  if (!keystore_->enabled.load(std::memory_order_acquire)) return Verdict::kNotEnabled;
  Entry* entry = keystore_->find(statement.session);
  if (entry == nullptr || statement.stream >= entry->session.streams) return Verdict::kSession;
  if (!entry->out) return Verdict::kRole;
  if (!detail::is_kind(statement.kind)) return Verdict::kKind;
  if (payload.size() > kMaxPayloadBytes) return Verdict::kTooLarge;

  const std::lock_guard lock(entry->out->mutex);
  detail::Count& count = entry->out->counts[statement.stream];
  if (count.exhausted) return Verdict::kExhausted;
  Proof made;
  detail::write_header({.algorithm = entry->session.algorithm,
                        .kind = statement.kind,
                        .stream = statement.stream,
                        .session = statement.session,
                        .device = device_,
                        .epoch = epoch_,
                        .counter = count.next,
                        .payload_bytes = static_cast<std::uint32_t>(payload.size()),
                        .slot = statement.slot,
                        .offset = statement.offset},
                       made.header);
  // Nothing of what was computed leaves before its counter is spent: the nonce of AES-256-GMAC.
  const bool computed =
      entry->out->mac.compute(made.header, statement.stream, count.next, payload, made.mac);
  if (!computed) return Verdict::kUnavailable;
  advance(count);
  proof = made;
  return Verdict::kOk;
} catch (const std::exception&) {
  return Verdict::kUnavailable;
}

// Everything that both kinds of verify ask for. Sets `entry` and `header`; the caller holds no
// lock.
Verdict LocalKernel::Keystore::judge(std::span<const std::byte> record, Kind expected,
                                     const LocalKernel& kernel, RecordHeader& header,
                                     Entry*& entry) const {
  if (!is_here()) return Verdict::kForked;
  if (!enabled.load(std::memory_order_acquire)) return Verdict::kNotEnabled;
  const Verdict format = detail::read_header(record, header);
  if (format != Verdict::kOk) return format;
  entry = find(header.session);
  if (entry == nullptr || header.stream >= entry->session.streams) return Verdict::kSession;
  if (header.algorithm != entry->session.algorithm) return Verdict::kAlgorithm;
  if (header.epoch != kernel.epoch()) return Verdict::kEpoch;
  return header.kind == expected ? Verdict::kOk : Verdict::kKind;
}

Verdict LocalKernel::Keystore::check_mac(std::span<const std::byte> record,
                                         const RecordHeader& header, Direction& direction) {
  MacSlot mac;
  if (!direction.mac.compute(record.first<kHeaderBytes>(), header.stream, header.counter,
                             payload_of(record), mac))
    return Verdict::kUnavailable;
  return detail::equal_in_constant_time(mac, record.last<kMacSlotBytes>()) ? Verdict::kOk
                                                                           : Verdict::kMac;
}

Verdict LocalKernel::verify(std::span<const std::byte> record, Kind expected) noexcept try {
  RecordHeader header;
  Entry* entry = nullptr;
  const Verdict judged = keystore_->judge(record, expected, *this, header, entry);
  if (judged != Verdict::kOk) return judged;
  if (!entry->in) return header.device == device_ ? Verdict::kDevice : Verdict::kRole;
  if (header.device != entry->session.peer) return Verdict::kDevice;
  if (entry->peer_has_group && (header.kind == Kind::kSend || header.kind == Kind::kWrite))
    return Verdict::kEquivocation;

  const std::lock_guard lock(entry->in->mutex);
  const Verdict authentic = Keystore::check_mac(record, header, *entry->in);
  if (authentic != Verdict::kOk) return authentic;
  detail::Count& count = entry->in->counts[header.stream];
  if (count.exhausted) return Verdict::kExhausted;
  if (header.counter != count.next) return Verdict::kCounter;
  advance(count);
  return Verdict::kOk;
} catch (const std::exception&) {
  return Verdict::kUnavailable;
}

Verdict LocalKernel::verify_stateless(std::span<const std::byte> record, Kind expected) noexcept
    try {
  RecordHeader header;
  Entry* entry = nullptr;
  const Verdict judged = keystore_->judge(record, expected, *this, header, entry);
  if (judged != Verdict::kOk) return judged;
  const bool own = header.device == device_ && entry->out;
  const bool peers = header.device == entry->session.peer && entry->in;
  if (!own && !peers) return Verdict::kDevice;
  Direction& direction = own ? *entry->out : *entry->in;
  const std::lock_guard lock(direction.mutex);
  return Keystore::check_mac(record, header, direction);
} catch (const std::exception&) {
  return Verdict::kUnavailable;
}

std::optional<Counters> LocalKernel::counters(std::uint32_t session, std::uint8_t stream) noexcept
    try {
  Entry* entry = keystore_->find_enabled(session);
  if (entry == nullptr || stream >= entry->session.streams) return std::nullopt;
  const auto next = [&](const std::unique_ptr<Direction>& direction) -> std::uint64_t {
    if (!direction) return 0;
    const std::lock_guard lock(direction->mutex);
    return direction->counts[stream].next;
  };
  return Counters{next(entry->out), next(entry->in)};
} catch (const std::exception&) {
  return std::nullopt;
}

std::optional<Session> LocalKernel::session(std::uint32_t id) noexcept {
  const Entry* entry = keystore_->find_enabled(id);
  if (entry == nullptr) return std::nullopt;
  return entry->session;
}

}  // namespace leat::trusted
