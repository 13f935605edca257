#include "prg.h"

#include <openssl/rand.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace training {
namespace {

void check(bool succeeded) {
  if (!succeeded) throw std::runtime_error("OpenSSL cannot compute AES, SHA-256 or random numbers");
}

}  // namespace

Key random_key() {
  Key key;
  check(RAND_bytes(key.data(), static_cast<int>(key.size())) == 1);
  return key;
}

Key key_from(std::uint64_t seed, std::uint64_t use) {
  const std::array<std::uint64_t, 2> text{seed, use};
  std::array<std::uint8_t, 32> digest{};
  check(EVP_Digest(text.data(), sizeof text, digest.data(), nullptr, EVP_sha256(), nullptr) == 1);
  Key key;
  std::copy_n(digest.begin(), key.size(), key.begin());
  return key;
}

Prg::Prg(const Key& key, std::uint64_t stream)
    : cipher_(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free) {
  // The counter takes the other half, and counts blocks of 16 bytes: it never reaches this one.
  std::array<std::uint8_t, 16> start{};
  std::memcpy(start.data(), &stream, sizeof stream);
  check(cipher_ != nullptr && EVP_EncryptInit_ex(cipher_.get(), EVP_aes_128_ctr(), nullptr,
                                                 key.data(), start.data()) == 1);
}

// The counter encrypted, and nothing else: zeros go in, always the same, which stay in the cache.
void Prg::fill(std::span<Word> words) {
  static constexpr std::array<unsigned char, 1 << 14> kZeros{};
  auto* bytes = reinterpret_cast<unsigned char*>(words.data());
  for (std::size_t left = words.size_bytes(); left != 0;) {
    const auto piece = static_cast<int>(std::min(left, kZeros.size()));
    int written = 0;
    check(EVP_EncryptUpdate(cipher_.get(), bytes, &written, kZeros.data(), piece) == 1);
    bytes += piece;
    left -= static_cast<std::size_t>(piece);
  }
}

Words Prg::draw(std::size_t count) {
  Words words(count);
  fill(words);
  return words;
}

}  // namespace training
