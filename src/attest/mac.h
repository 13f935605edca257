// The MAC of records, and the keys for it. Part of the trusted base: docs/security.md.
#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/secret_memory.h"
#include "leat/attest/attestation.h"

namespace leat::trusted::detail {

using MacSlot = std::array<std::byte, kMacSlotBytes>;

// A key of an algorithm, in contexts of OpenSSL that are reused for each record. One thread at a
// time.
class Mac {
 public:
  // `key`: derived_key_bytes(algorithm). Throws leat::Error kSystem if OpenSSL cannot.
  Mac(Algorithm algorithm, std::span<const std::byte> key);

  // Computes the MAC of header and payload, padded with zeros. `stream` and `counter` are those of
  // the header; a sender passes them at most once under one key, because they are AES-256-GMAC's
  // nonce. Returns false if OpenSSL failed.
  bool compute(std::span<const std::byte, kHeaderBytes> header, std::uint8_t stream,
               std::uint64_t counter, std::span<const std::byte> payload, MacSlot& slot) noexcept;

 private:
  struct Free {
    void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
  };
  Algorithm algorithm_;
  std::unique_ptr<EVP_MAC_CTX, Free> context_;
};

std::size_t derived_key_bytes(Algorithm algorithm) noexcept;

// Fills `key` by HKDF-SHA-256 from a session's key; `purpose` keeps keys apart. Throws leat::Error
// kSystem.
void derive_key(std::span<const std::byte> session_key, std::span<const std::byte> purpose,
                std::span<std::byte> key);

// Takes the same time wherever the two differ.
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) noexcept;

}  // namespace leat::trusted::detail
