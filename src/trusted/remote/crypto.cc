#include "trusted/remote/crypto.h"

#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <algorithm>
#include <fstream>

#include "base/quote.h"
#include "leat/error.h"
#include "net/tls_context.h"

namespace leat::trusted::remote {
namespace {

constexpr std::size_t kGcmNonceBytes = 12, kGcmTagBytes = 16;

using DigestHandle = std::unique_ptr<EVP_MD_CTX, FreeBy<EVP_MD_CTX_free>>;
using CipherHandle = std::unique_ptr<EVP_CIPHER_CTX, FreeBy<EVP_CIPHER_CTX_free>>;

const unsigned char* raw(View bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

DigestHandle new_digest() {
  DigestHandle context(EVP_MD_CTX_new());
  if (!context) fail_crypto("EVP_MD_CTX_new");
  return context;
}

}  // namespace

void fail_crypto(const char* what) {
  throw Error(ErrorCode::kResource, std::string(what) + " failed: " + leat::detail::tls_reason());
}

void check_crypto(int result, const char* what) {
  if (result != 1) fail_crypto(what);
}

void fill_random(std::span<std::byte> bytes) {
  check_crypto(RAND_bytes(raw(bytes.data()), static_cast<int>(bytes.size())), "RAND_bytes");
}

Digest sha384(View bytes) {
  Digest digest;
  check_crypto(
      EVP_Digest(bytes.data(), bytes.size(), raw(digest.data()), nullptr, EVP_sha384(), nullptr),
      "EVP_Digest");
  return digest;
}

Digest sha384_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const DigestHandle context = new_digest();
  check_crypto(EVP_DigestInit_ex(context.get(), EVP_sha384(), nullptr), "EVP_DigestInit_ex");
  std::vector<char> block(std::size_t{1} << 16);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0) {
    check_crypto(
        EVP_DigestUpdate(context.get(), block.data(), static_cast<std::size_t>(file.gcount())),
        "EVP_DigestUpdate");
  }
  if (!file.eof()) {
    throw Error(ErrorCode::kInvalidArgument,
                leat::detail::quoted(path) + " cannot be read, so it cannot be measured");
  }
  Digest digest;
  check_crypto(EVP_DigestFinal_ex(context.get(), raw(digest.data()), nullptr),
               "EVP_DigestFinal_ex");
  return digest;
}

bool same(View a, View b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

SecretBytes derive(View secret, std::string_view purpose, std::size_t bytes) {
  const std::unique_ptr<EVP_KDF, FreeBy<EVP_KDF_free>> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  const std::unique_ptr<EVP_KDF_CTX, FreeBy<EVP_KDF_CTX_free>> context(EVP_KDF_CTX_new(kdf.get()));
  if (!context) fail_crypto("EVP_KDF_CTX_new");
  std::string digest = "SHA256";
  std::string info(purpose);
  SecretBytes key(secret.begin(), secret.end());
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, key.data(), key.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), info.size()),
      OSSL_PARAM_construct_end()};
  SecretBytes derived(bytes);
  check_crypto(EVP_KDF_derive(context.get(), raw(derived.data()), derived.size(), parameters),
               "EVP_KDF_derive");
  return derived;
}

KeyHandle make_key() {
  const auto seed = derive(random<std::array<std::byte, 32>>(), "leat new key", 32);
  return key_from_seed(seed);
}

KeyHandle key_from_seed(View seed) {
  KeyHandle key(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, raw(seed), seed.size()));
  if (!key) fail_crypto("EVP_PKEY_new_raw_private_key");
  return key;
}

Pin pin_of(const EVP_PKEY& key) {
  unsigned char* der = nullptr;
  const int bytes = i2d_PUBKEY(&key, &der);
  if (bytes <= 0) fail_crypto("i2d_PUBKEY");
  Pin pin;
  const int hashed = EVP_Digest(der, static_cast<std::size_t>(bytes), raw(pin.data()), nullptr,
                                EVP_sha256(), nullptr);
  OPENSSL_free(der);
  check_crypto(hashed, "EVP_Digest");
  return pin;
}

Signature sign(EVP_PKEY& key, View message) {
  const DigestHandle context = new_digest();
  check_crypto(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, &key),
               "EVP_DigestSignInit");
  Signature signature;
  std::size_t bytes = signature.size();
  check_crypto(
      EVP_DigestSign(context.get(), raw(signature.data()), &bytes, raw(message), message.size()),
      "EVP_DigestSign");
  return signature;
}

bool verify(EVP_PKEY& key, View message, View signature) {
  const DigestHandle context = new_digest();
  check_crypto(EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, &key),
               "EVP_DigestVerifyInit");
  const bool good = EVP_DigestVerify(context.get(), raw(signature), signature.size(), raw(message),
                                     message.size()) == 1;
  leat::detail::tls_reason();  // why it is bad is of no interest to the next caller
  return good;
}

bool is_ed25519(const EVP_PKEY& key) { return EVP_PKEY_get_id(&key) == EVP_PKEY_ED25519; }

Bytes seal(View key, View context, View plain) {
  Bytes sealed(kGcmNonceBytes + plain.size() + kGcmTagBytes);
  fill_random(std::span(sealed).first(kGcmNonceBytes));
  const CipherHandle cipher(EVP_CIPHER_CTX_new());
  int bytes = 0;
  check_crypto(EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, raw(key), raw(sealed)),
               "EVP_EncryptInit_ex");
  check_crypto(EVP_EncryptUpdate(cipher.get(), nullptr, &bytes, raw(context),
                                 static_cast<int>(context.size())),
               "EVP_EncryptUpdate");
  check_crypto(EVP_EncryptUpdate(cipher.get(), raw(sealed.data() + kGcmNonceBytes), &bytes,
                                 raw(plain), static_cast<int>(plain.size())),
               "EVP_EncryptUpdate");
  std::byte* const tag = sealed.data() + kGcmNonceBytes + plain.size();
  check_crypto(EVP_EncryptFinal_ex(cipher.get(), raw(tag), &bytes), "EVP_EncryptFinal_ex");
  check_crypto(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kGcmTagBytes, tag),
               "EVP_CTRL_GCM_GET_TAG");
  return sealed;
}

Bytes unseal(View key, View context, View sealed) {
  const Error refused(ErrorCode::kAuthentication,
                      "sealed bytes were not made with this key for this purpose");
  if (sealed.size() < kGcmNonceBytes + kGcmTagBytes) throw refused;
  const View body = sealed.subspan(kGcmNonceBytes, sealed.size() - kGcmNonceBytes - kGcmTagBytes);
  std::array<std::byte, kGcmTagBytes> tag;
  std::copy(sealed.end() - kGcmTagBytes, sealed.end(), tag.begin());
  Bytes plain(body.size());
  const CipherHandle cipher(EVP_CIPHER_CTX_new());
  int bytes = 0;
  check_crypto(EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, raw(key), raw(sealed)),
               "EVP_DecryptInit_ex");
  check_crypto(EVP_DecryptUpdate(cipher.get(), nullptr, &bytes, raw(context),
                                 static_cast<int>(context.size())),
               "EVP_DecryptUpdate");
  check_crypto(EVP_DecryptUpdate(cipher.get(), raw(plain.data()), &bytes, raw(body),
                                 static_cast<int>(body.size())),
               "EVP_DecryptUpdate");
  check_crypto(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kGcmTagBytes, tag.data()),
               "EVP_CTRL_GCM_SET_TAG");
  if (EVP_DecryptFinal_ex(cipher.get(), raw(plain.data() + plain.size()), &bytes) != 1) {
    leat::detail::tls_reason();
    throw refused;
  }
  return plain;
}

}  // namespace leat::trusted::remote
