#include "transport/sealed/record.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "attest/mac.h"
#include "base/wire.h"
#include "leat/error.h"

namespace leat::detail {
namespace {

constexpr std::string_view kFlowLabel = "leat sealed flow";
constexpr std::string_view kKeyLabel = "leat sealed key";
constexpr std::string_view kIvLabel = "leat sealed iv";
constexpr std::string_view kNextLabel = "leat sealed next";
constexpr std::size_t kMostKeyBytes = 32;

// Bytes of a key on the stack.
template <std::size_t kBytes>
struct Wiped {
  std::array<std::byte, kBytes> bytes{};
  Wiped() = default;
  ~Wiped() { OPENSSL_cleanse(bytes.data(), kBytes); }
  Wiped(const Wiped&) = delete;
  Wiped& operator=(const Wiped&) = delete;
};

void derive(std::span<const std::byte> secret, std::string_view label, std::span<std::byte> to) {
  trusted::detail::derive_key(secret, std::as_bytes(std::span(label)), to);
}

[[noreturn]] void refuse_to_seal(const char* why) {
  throw Error(ErrorCode::kSystem, std::string("cannot seal a message: ") + why, "Connect again.");
}

}  // namespace

RecordKeys::RecordKeys(SealCipher cipher, Aead::Does does, Context context, const KeyLimits& limits,
                       std::span<std::byte, kSealSecretBytes> secret)
    : cipher_(cipher), context_(context), limits_(limits), secret_(secret), aead_(cipher, does) {}

RecordKeys::~RecordKeys() { OPENSSL_cleanse(iv_.data(), iv_.size()); }

void RecordKeys::prepare(std::size_t bytes) {
  // A record longer than a key's limit has a key of its own.
  const bool whole_key = bytes_left_ == limits_.bytes;
  if (records_left_ == 0 || (bytes > bytes_left_ && !whole_key)) [[unlikely]]
    next_key();
}

// The old secret is gone once the new one stands: who learns this one later cannot open what was
// sealed before.
void RecordKeys::next_key() {
  if (keyed_) {
    Wiped<kSealSecretBytes> next;
    derive(secret_, kNextLabel, next.bytes);
    std::copy(next.bytes.begin(), next.bytes.end(), secret_.begin());
    keyed_ = false;
  }
  set_key_of(aead_);
  derive(secret_, kIvLabel, iv_);
  keyed_ = true;
  records_left_ = limits_.records;
  bytes_left_ = limits_.bytes;
}

void RecordKeys::set_key_of(Aead& other) const {
  Wiped<kMostKeyBytes> key;
  const auto used = std::span(key.bytes).first(key_bytes(cipher_));
  derive(secret_, kKeyLabel, used);
  other.set_key(used);
}

SealNonce RecordKeys::nonce() const {
  SealNonce nonce = iv_;
  for (std::size_t i = 0; i < sizeof number_; ++i)
    nonce[kSealNonceBytes - sizeof number_ + i] ^=
        static_cast<std::byte>(number_ >> (8 * i) & 0xff);
  return nonce;
}

SealAad RecordKeys::aad(std::size_t bytes, SealedKind kind) const {
  SealAad aad{};
  WireWriter writer(aad);
  writer.number(number_);
  writer.number(static_cast<std::uint32_t>(bytes));
  writer.number(static_cast<std::uint8_t>(context_));
  writer.number(static_cast<std::uint8_t>(kind));
  return aad;
}

void RecordKeys::advance(std::size_t bytes) {
  ++number_;
  --records_left_;
  bytes_left_ -= std::min<std::uint64_t>(bytes, bytes_left_);
}

void Sealer::seal(SealedKind kind, std::span<const std::byte> message,
                  std::span<std::byte> record) {
  if (dead_) refuse_to_seal("an earlier one failed");
  keys_.prepare(message.size());
  last_nonce_ = keys_.nonce();
  last_aad_ = keys_.aad(message.size(), kind);
  // Before OpenSSL has the nonce: whatever happens, it never has it again.
  keys_.advance(message.size());
  if (!keys_.aead().seal(last_nonce_, last_aad_, message, record.data(),
                         record.last<kSealTagBytes>())) {
    dead_ = true;
    refuse_to_seal("OpenSSL failed");
  }
}

bool Sealer::is_of(std::span<const std::byte> record, std::span<const std::byte> message) const {
  if (record.size() != message.size() + kSealTagBytes) return false;
  const auto opened = std::make_unique_for_overwrite<std::byte[]>(message.size() + 1);
  Aead aead(cipher_, Aead::Does::kOpen);
  keys_.set_key_of(aead);
  const bool same = aead.open(last_nonce_, last_aad_, record.first(message.size()),
                              record.last<kSealTagBytes>(), opened.get()) &&
                    std::equal(message.begin(), message.end(), opened.get());
  OPENSSL_cleanse(opened.get(), message.size());
  return same;
}

bool Opener::open(SealedKind kind, std::span<const std::byte> record, std::byte* opened) {
  if (record.size() < kSealTagBytes || record.size() - kSealTagBytes > kMaxSealedBytes)
    return false;
  const std::size_t bytes = record.size() - kSealTagBytes;
  keys_.prepare(bytes);
  if (!keys_.aead().open(keys_.nonce(), keys_.aad(bytes, kind), record.first(bytes),
                         record.last<kSealTagBytes>(), opened))
    return false;
  keys_.advance(bytes);
  return true;
}

SealSecrets::SealSecrets(std::span<const std::byte, kSealSecretBytes> exported)
    : memory_(2 * kContextCount * kSealSecretBytes) {
  for (const Direction direction : {Direction::kFromActive, Direction::kFromPassive}) {
    for (Context context = 0; context < kContextCount; ++context) {
      std::array<std::byte, kFlowLabel.size() + 2> purpose{};
      WireWriter writer(purpose);
      writer.text(kFlowLabel, kFlowLabel.size());
      writer.number(static_cast<std::uint8_t>(direction));
      writer.number(static_cast<std::uint8_t>(context));
      trusted::detail::derive_key(exported, purpose, of(direction, context));
    }
  }
}

std::span<std::byte, kSealSecretBytes> SealSecrets::of(Direction direction, Context context) const {
  const std::size_t flow = (direction == Direction::kFromActive ? 0 : kContextCount) + context;
  return memory_.span().subspan(flow * kSealSecretBytes).first<kSealSecretBytes>();
}

}  // namespace leat::detail
