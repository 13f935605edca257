// Authenticated encryption by OpenSSL, in contexts that are reused for each record.
#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/setting_types.h"

namespace leat::detail {

inline constexpr std::size_t kSealTagBytes = 16;
inline constexpr std::size_t kSealNonceBytes = 12;
inline constexpr std::size_t kSealAadBytes = 16;

using SealNonce = std::array<std::byte, kSealNonceBytes>;
using SealAad = std::array<std::byte, kSealAadBytes>;

// Not kAuto.
std::size_t key_bytes(SealCipher cipher) noexcept;
std::string_view to_string(SealCipher cipher) noexcept;
// Whether this processor has instructions for AES and its authentication; without them ChaCha20 is
// faster, and AES takes a time that depends on the key.
bool processor_has_aes() noexcept;

// One key. Holds none before set_key. One thread at a time.
class Aead {
 public:
  enum class Does { kSeal, kOpen };

  // Throws kSystem if OpenSSL has no such cipher, kResource without memory.
  Aead(SealCipher cipher, Does does);

  // `key`: key_bytes(cipher). Throws kSystem.
  void set_key(std::span<const std::byte> key);

  // Writes as many bytes as `message` has to `sealed`, and the tag. Reads `message` once or more
  // often: it must not change meanwhile. Returns false if OpenSSL failed; then what was written is
  // worth nothing, and the nonce is spent all the same.
  [[nodiscard]] bool seal(const SealNonce& nonce, const SealAad& aad,
                          std::span<const std::byte> message, std::byte* sealed,
                          std::span<std::byte, kSealTagBytes> tag) noexcept;

  // The same backwards, from memory that may change meanwhile: each byte is read once, to `opened`,
  // and deciphered there. `opened` may be `sealed` itself if nobody else writes there. Returns
  // false if the bytes are not what was sealed; then what lies in `opened` is worth nothing.
  [[nodiscard]] bool open(const SealNonce& nonce, const SealAad& aad,
                          std::span<const std::byte> sealed,
                          std::span<const std::byte, kSealTagBytes> tag,
                          std::byte* opened) noexcept;

 private:
  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
  };
  std::unique_ptr<EVP_CIPHER_CTX, Free> context_;
};

}  // namespace leat::detail
