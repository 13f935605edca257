// Pseudo-random words: AES-128 in counter mode, by OpenSSL.
#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "ring.h"

namespace training {

using Key = std::array<std::uint8_t, 16>;

// From the kernel.
Key random_key();
// For runs that can be repeated: the same for the same number and use, and no secret.
Key key_from(std::uint64_t seed, std::uint64_t use);

// What is drawn depends on key, stream and what was drawn before, alone. One thread at a time.
class Prg {
 public:
  // Streams of one key are independent of each other.
  Prg(const Key& key, std::uint64_t stream);

  void fill(std::span<Word> words);
  Words draw(std::size_t count);

 private:
  std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> cipher_;
};

}  // namespace training
