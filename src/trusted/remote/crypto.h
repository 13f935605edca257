// The primitives of remote attestation, all from OpenSSL: Ed25519, SHA-2, HKDF, AES-256-GCM.
#pragma once

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace leat::trusted::remote {

using Bytes = std::vector<std::byte>;
using View = std::span<const std::byte>;
using Nonce = std::array<std::byte, 32>;
using Pin = std::array<std::byte, 32>;     // SHA-256 of a SubjectPublicKeyInfo
using Digest = std::array<std::byte, 48>;  // SHA-384
using Signature = std::array<std::byte, 64>;

// Wipes memory before it is freed, so that no secret remains in it.
template <typename T>
struct WipingAllocator {
  using value_type = T;
  WipingAllocator() = default;
  template <typename U>
  explicit WipingAllocator(const WipingAllocator<U>&) noexcept {}

  T* allocate(std::size_t count) { return static_cast<T*>(::operator new(count * sizeof(T))); }
  void deallocate(T* place, std::size_t count) noexcept {
    OPENSSL_cleanse(place, count * sizeof(T));
    ::operator delete(place);
  }
  bool operator==(const WipingAllocator&) const = default;
};
using SecretBytes = std::vector<std::byte, WipingAllocator<std::byte>>;

template <auto free_it>
struct FreeBy {
  template <typename T>
  void operator()(T* object) const {
    free_it(object);
  }
};
using KeyHandle = std::unique_ptr<EVP_PKEY, FreeBy<EVP_PKEY_free>>;
using CertificateHandle = std::unique_ptr<X509, FreeBy<X509_free>>;
using RevocationHandle = std::unique_ptr<X509_CRL, FreeBy<X509_CRL_free>>;

inline View as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// Throws leat::Error(kResource) with OpenSSL's text, for failures that no input explains.
[[noreturn]] void fail_crypto(const char* what);
// The same if `result` is not 1.
void check_crypto(int result, const char* what);

void fill_random(std::span<std::byte> bytes);
template <typename T>
T random() {
  T value;
  fill_random(value);
  return value;
}

Digest sha384(View bytes);
// Of a file. Throws kInvalidArgument, naming it.
Digest sha384_of_file(const std::string& path);
bool same(View a, View b) noexcept;  // its time depends on the lengths only

// Derives `bytes` bytes from `secret`, different for each `purpose` (HKDF-SHA-256).
SecretBytes derive(View secret, std::string_view purpose, std::size_t bytes);

// An Ed25519 key; it has the private half if it was made with it.
KeyHandle make_key();
KeyHandle key_from_seed(View seed);  // 32 bytes
Pin pin_of(const EVP_PKEY& key);
Signature sign(EVP_PKEY& key, View message);
bool verify(EVP_PKEY& key, View message, View signature);
bool is_ed25519(const EVP_PKEY& key);

// AES-256-GCM; a random nonce precedes and the tag follows. `context` is authenticated too.
Bytes seal(View key, View context, View plain);
// Throws kAuthentication unless seal() made it with the same key and context.
Bytes unseal(View key, View context, View sealed);

}  // namespace leat::trusted::remote
