#include "transport/sealed/aead.h"

#include <openssl/err.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "leat/error.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace leat::detail {
namespace {

// Copied and deciphered at once, while they are in the first cache.
constexpr std::size_t kBlockBytes = 8192;

const EVP_CIPHER* evp_cipher(SealCipher cipher) {
  switch (cipher) {
    case SealCipher::kAes128Gcm:
      return EVP_aes_128_gcm();
    case SealCipher::kChaCha20Poly1305:
      return EVP_chacha20_poly1305();
    default:
      return EVP_aes_256_gcm();
  }
}

const unsigned char* as_chars(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* as_chars(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

[[noreturn]] void refuse(std::string_view what) {
  ERR_clear_error();
  throw Error(ErrorCode::kSystem, std::string(what) + " is not available from OpenSSL",
              "Check its configuration: openssl list -cipher-algorithms");
}

}  // namespace

std::size_t key_bytes(SealCipher cipher) noexcept {
  return cipher == SealCipher::kAes128Gcm ? 16 : 32;
}

std::string_view to_string(SealCipher cipher) noexcept {
  switch (cipher) {
    case SealCipher::kAuto:
      return "any cipher";
    case SealCipher::kAes256Gcm:
      return "AES-256-GCM";
    case SealCipher::kAes128Gcm:
      return "AES-128-GCM";
    case SealCipher::kChaCha20Poly1305:
      return "ChaCha20-Poly1305";
  }
  return "an unknown cipher";
}

bool processor_has_aes() noexcept {
#if defined(__x86_64__)
  return __builtin_cpu_supports("aes") != 0 && __builtin_cpu_supports("pclmul") != 0;
#elif defined(__aarch64__)
  constexpr unsigned long kBoth = HWCAP_AES | HWCAP_PMULL;
  return (getauxval(AT_HWCAP) & kBoth) == kBoth;
#else
  return false;
#endif
}

Aead::Aead(SealCipher cipher, Does does) : context_(EVP_CIPHER_CTX_new()) {
  if (!context_) throw Error(ErrorCode::kResource, "OpenSSL gives no context of a cipher");
  if (EVP_CipherInit_ex2(context_.get(), evp_cipher(cipher), nullptr, nullptr,
                         does == Does::kSeal ? 1 : 0, nullptr) != 1)
    refuse(to_string(cipher));
}

void Aead::set_key(std::span<const std::byte> key) {
  if (EVP_CipherInit_ex2(context_.get(), nullptr, as_chars(key.data()), nullptr, -1, nullptr) != 1)
    refuse("a key of a cipher");
}

bool Aead::seal(const SealNonce& nonce, const SealAad& aad, std::span<const std::byte> message,
                std::byte* sealed, std::span<std::byte, kSealTagBytes> tag) noexcept {
  EVP_CIPHER_CTX* const context = context_.get();
  int written = 0;
  if (EVP_EncryptInit_ex2(context, nullptr, nullptr, as_chars(nonce.data()), nullptr) != 1 ||
      EVP_EncryptUpdate(context, nullptr, &written, as_chars(aad.data()), kSealAadBytes) != 1)
    return false;
  if (!message.empty() &&
      (EVP_EncryptUpdate(context, as_chars(sealed), &written, as_chars(message.data()),
                         static_cast<int>(message.size())) != 1 ||
       static_cast<std::size_t>(written) != message.size()))
    return false;
  return EVP_EncryptFinal_ex(context, nullptr, &written) == 1 &&
         EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, kSealTagBytes, tag.data()) == 1;
}

bool Aead::open(const SealNonce& nonce, const SealAad& aad, std::span<const std::byte> sealed,
                std::span<const std::byte, kSealTagBytes> tag, std::byte* opened) noexcept {
  EVP_CIPHER_CTX* const context = context_.get();
  std::array<std::byte, kSealTagBytes> expected;
  std::copy(tag.begin(), tag.end(), expected.begin());
  int written = 0;
  if (EVP_DecryptInit_ex2(context, nullptr, nullptr, as_chars(nonce.data()), nullptr) != 1 ||
      EVP_DecryptUpdate(context, nullptr, &written, as_chars(aad.data()), kSealAadBytes) != 1)
    return false;
  const bool elsewhere = opened != sealed.data();
  for (std::size_t at = 0; at < sealed.size();) {
    const std::size_t bytes = std::min(sealed.size() - at, kBlockBytes);
    // A cipher reads a byte twice: to authenticate it, and to decipher it. Whoever could change it
    // in between would change what is handed out.
    if (elsewhere) std::memcpy(opened + at, sealed.data() + at, bytes);
    if (EVP_DecryptUpdate(context, as_chars(opened + at), &written, as_chars(opened + at),
                          static_cast<int>(bytes)) != 1 ||
        static_cast<std::size_t>(written) != bytes)
      return false;
    at += bytes;
  }
  return EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, kSealTagBytes, expected.data()) == 1 &&
         EVP_DecryptFinal_ex(context, nullptr, &written) == 1;
}

}  // namespace leat::detail
