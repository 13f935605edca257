// The meaning of entries: the slots of their records, and the cumulative digest. Pure.
#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "leat/trusted/a2m.h"

namespace leat::trusted::detail {

inline constexpr std::size_t kDigestBytes = 32;
using Digest = std::array<std::byte, kDigestBytes>;

// The low byte of an entry's slot is its kind. This flag says that its payload begins with a
// digest.
inline constexpr std::uint32_t kDigestFlag = 0x100;

// The cumulative digest c_digest[i] = SHA-256(i, kind, head, c_digest[i-1], context), where the
// numbers are little-endian with 8 bytes each, and c_digest[-1] is zeros. Where entries are lost,
// i-1 stands for the last existing one. One thread at a time. Throws leat::Error kSystem.
class Digester {
 public:
  Digester();
  void digest(std::uint64_t index, EntryKind kind, std::uint64_t head, const Digest& previous,
              std::span<const std::byte> context, Digest& digest);

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
    void operator()(EVP_MD* algorithm) const { EVP_MD_free(algorithm); }
  };
  std::unique_ptr<EVP_MD, Free> algorithm_;
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

// SHA-256 of contiguous bytes: of a file's header.
void sha256(std::span<const std::byte> bytes, Digest& digest);

}  // namespace leat::trusted::detail
