// The digest over a whole transfer (setting chunked_verify=on): SHA-256 of OpenSSL, which leat
// needs anyway for TLS. It is faster than the paths that the chunked transport is for (1 to 2 GB/s
// with the processor's SHA instructions), and two programs of any kind can compute it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "transport/chunked/header.h"

struct evp_md_ctx_st;

namespace leat::detail {

// Takes a transfer's bytes in their order, in any pieces. Throws kSystem if OpenSSL has no SHA-256.
class ChunkDigester {
 public:
  ChunkDigester();

  void add(std::span<const std::byte> bytes);
  std::size_t bytes() const { return bytes_; }  // added so far
  // Of all that was added; may be asked again.
  ChunkDigest digest() const;

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const noexcept;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
  std::size_t bytes_ = 0;
};

}  // namespace leat::detail
