#include "attest/mac.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <algorithm>
#include <string_view>

#include "attest/record.h"
#include "base/wire.h"
#include "leat/error.h"

namespace leat::trusted::detail {
namespace {

// In front of every header, so that no other use of a key can give a record's MAC.
constexpr std::string_view kLabel = "leat-att-v1";
constexpr std::size_t kIvBytes = 12;

Error openssl_failed(const char* what) {
  return {ErrorCode::kSystem, std::string(what) + " is not available from OpenSSL",
          "Check its configuration: openssl list -mac-algorithms"};
}

OSSL_PARAM text_param(const char* name, const char* text) {
  return OSSL_PARAM_construct_utf8_string(name, const_cast<char*>(text), 0);
}

const unsigned char* as_chars(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

const char* digest_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kHmacSha384:
      return "SHA384";
    case Algorithm::kHmacSha512:
      return "SHA512";
    default:
      return "SHA256";
  }
}

}  // namespace

std::size_t derived_key_bytes(Algorithm algorithm) noexcept {
  return algorithm == Algorithm::kAes256Gmac ? 32 : mac_bytes(algorithm);
}

Mac::Mac(Algorithm algorithm, std::span<const std::byte> key) : algorithm_(algorithm) {
  const bool gmac = algorithm == Algorithm::kAes256Gmac;
  EVP_MAC* mac = EVP_MAC_fetch(nullptr, gmac ? "GMAC" : "HMAC", nullptr);
  context_.reset(mac == nullptr ? nullptr : EVP_MAC_CTX_new(mac));
  EVP_MAC_free(mac);  // the context keeps its own reference
  const OSSL_PARAM params[] = {gmac ? text_param(OSSL_MAC_PARAM_CIPHER, "AES-256-GCM")
                                    : text_param(OSSL_MAC_PARAM_DIGEST, digest_of(algorithm)),
                               OSSL_PARAM_construct_end()};
  if (!context_ || EVP_MAC_init(context_.get(), as_chars(key.data()), key.size(), params) != 1)
    throw openssl_failed(gmac ? "GMAC" : "HMAC");
}

bool Mac::compute(std::span<const std::byte, kHeaderBytes> header, std::uint8_t stream,
                  std::uint64_t counter, std::span<const std::byte> payload,
                  MacSlot& slot) noexcept {
  std::array<std::byte, kIvBytes> nonce;
  leat::detail::WireWriter writer(nonce);
  writer.number(std::uint32_t{stream});
  writer.number(counter);
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_IV, nonce.data(), nonce.size()),
      OSSL_PARAM_construct_end()};
  const bool gmac = algorithm_ == Algorithm::kAes256Gmac;

  std::array<std::byte, kLabel.size() + kHeaderBytes> first;
  std::copy(
      header.begin(), header.end(),
      std::copy_n(reinterpret_cast<const std::byte*>(kLabel.data()), kLabel.size(), first.begin()));
  slot = {};
  std::size_t written = 0;
  EVP_MAC_CTX* context = context_.get();
  return EVP_MAC_init(context, nullptr, 0, gmac ? params : nullptr) == 1 &&
         EVP_MAC_update(context, as_chars(first.data()), first.size()) == 1 &&
         EVP_MAC_update(context, as_chars(payload.data()), payload.size()) == 1 &&
         EVP_MAC_final(context, reinterpret_cast<unsigned char*>(slot.data()), &written,
                       slot.size()) == 1 &&
         written == mac_bytes(algorithm_);
}

void derive_key(std::span<const std::byte> session_key, std::span<const std::byte> purpose,
                std::span<std::byte> key) {
  EVP_KDF* kdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  EVP_KDF_CTX* context = kdf == nullptr ? nullptr : EVP_KDF_CTX_new(kdf);
  EVP_KDF_free(kdf);
  const auto octets = [](const char* name, std::span<const std::byte> bytes) {
    return OSSL_PARAM_construct_octet_string(name, const_cast<std::byte*>(bytes.data()),
                                             bytes.size());
  };
  const OSSL_PARAM params[] = {text_param(OSSL_KDF_PARAM_DIGEST, "SHA256"),
                               octets(OSSL_KDF_PARAM_KEY, session_key),
                               octets(OSSL_KDF_PARAM_INFO, purpose), OSSL_PARAM_construct_end()};
  const bool derived =
      context != nullptr && EVP_KDF_derive(context, reinterpret_cast<unsigned char*>(key.data()),
                                           key.size(), params) == 1;
  EVP_KDF_CTX_free(context);
  if (!derived) throw openssl_failed("HKDF");
}

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace leat::trusted::detail
