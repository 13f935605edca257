// Sealed records: what a message becomes on its way, and the keys for it. Pure;
// docs/transports/sealed.md has the bytes, and argues why no nonce serves twice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/secret_memory.h"
#include "transport/context.h"
#include "transport/sealed/aead.h"

namespace leat::detail {

inline constexpr std::size_t kSealSecretBytes = 32;
// Longer ones are refused: OpenSSL counts in int.
inline constexpr std::size_t kMaxSealedBytes = std::size_t{1} << 30;

enum class SealedKind : std::uint8_t {
  kMessage = 0,
  kEnd = 1,  // empty: nothing more comes in this context
};

// How much one key seals; the next one follows of itself, on both sides at the same record.
struct KeyLimits {
  std::uint64_t records = std::uint64_t{1} << 24;
  std::uint64_t bytes = std::uint64_t{1} << 36;

  friend bool operator==(const KeyLimits&, const KeyLimits&) = default;
};

// The number, the key and the nonce of each record of one flow: one context, one direction. Both
// ends count alike, so none of them is ever sent. One thread at a time.
class RecordKeys {
 public:
  // `secret`: where the flow's secret lies and will be replaced; outlives this.
  RecordKeys(SealCipher cipher, Aead::Does does, Context context, const KeyLimits& limits,
             std::span<std::byte, kSealSecretBytes> secret);
  ~RecordKeys();
  RecordKeys(const RecordKeys&) = delete;
  RecordKeys& operator=(const RecordKeys&) = delete;

  // Changes to the next key if the record that comes next, of so many bytes, needs that. Throws
  // kSystem; the record can be tried again.
  void prepare(std::size_t bytes);
  // Of the record that comes next.
  SealNonce nonce() const;
  SealAad aad(std::size_t bytes, SealedKind kind) const;
  Aead& aead() { return aead_; }
  // That record is done.
  void advance(std::size_t bytes);
  std::uint64_t number() const { return number_; }

  // Gives `other` the key that is in use.
  void set_key_of(Aead& other) const;

 private:
  void next_key();

  const SealCipher cipher_;
  const Context context_;
  const KeyLimits limits_;
  const std::span<std::byte, kSealSecretBytes> secret_;
  Aead aead_;
  SealNonce iv_{};
  std::uint64_t number_ = 0;
  std::uint64_t records_left_ = 0;  // 0 before the first key too
  std::uint64_t bytes_left_ = 0;
  bool keyed_ = false;
};

class Sealer {
 public:
  Sealer(SealCipher cipher, Context context, const KeyLimits& limits,
         std::span<std::byte, kSealSecretBytes> secret)
      : cipher_(cipher), keys_(cipher, Aead::Does::kSeal, context, limits, secret) {}

  // Derives the first key now, so that the first message need not wait for it. Throws kSystem.
  void prepare() { keys_.prepare(0); }
  // Fills `record`, which has kSealTagBytes more than the message. Throws kSystem; the number is
  // then spent if OpenSSL may have used it, and the flow is dead.
  void seal(SealedKind kind, std::span<const std::byte> message, std::span<std::byte> record);
  // Whether `record`, the last one that was sealed, is of that message. Opens it, so that no number
  // is used again; slow.
  bool is_of(std::span<const std::byte> record, std::span<const std::byte> message) const;

 private:
  const SealCipher cipher_;
  RecordKeys keys_;
  // Of the last record.
  SealNonce last_nonce_{};
  SealAad last_aad_{};
  bool dead_ = false;
};

class Opener {
 public:
  Opener(SealCipher cipher, Context context, const KeyLimits& limits,
         std::span<std::byte, kSealSecretBytes> secret)
      : keys_(cipher, Aead::Does::kOpen, context, limits, secret) {}

  // As Sealer::prepare.
  void prepare() { keys_.prepare(0); }
  // Opens the record whose turn it is: false if these bytes are not it, of that kind. Then they may
  // be tried as another kind, and nothing else may come. `opened` has kSealTagBytes less than
  // `record`; see Aead::open. Throws kSystem.
  [[nodiscard]] bool open(SealedKind kind, std::span<const std::byte> record, std::byte* opened);

 private:
  RecordKeys keys_;
};

// The secrets of all flows of one side of a connection, derived from what TLS exports: the other
// side has the same. Locked memory, wiped at the end and in children of fork().
class SealSecrets {
 public:
  enum class Direction : std::uint8_t { kFromActive = 1, kFromPassive = 2 };

  // `exported` is not kept. Throws kSystem, and kResource if no memory can be locked.
  explicit SealSecrets(std::span<const std::byte, kSealSecretBytes> exported);

  std::span<std::byte, kSealSecretBytes> of(Direction direction, Context context) const;

 private:
  SecretMemory memory_;
};

}  // namespace leat::detail
