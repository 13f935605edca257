#include "transport/chunked/digest.h"

#include <openssl/evp.h>

#include "leat/error.h"

namespace leat::detail {
namespace {

void check(int done) {
  if (done != 1) throw Error(ErrorCode::kSystem, "OpenSSL cannot compute SHA-256");
}

}  // namespace

void ChunkDigester::Free::operator()(evp_md_ctx_st* context) const noexcept {
  EVP_MD_CTX_free(context);
}

ChunkDigester::ChunkDigester() : context_(EVP_MD_CTX_new()) {
  check(context_ == nullptr ? 0 : EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
}

void ChunkDigester::add(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
  bytes_ += bytes.size();
}

ChunkDigest ChunkDigester::digest() const {
  ChunkDigester copy;
  check(EVP_MD_CTX_copy_ex(copy.context_.get(), context_.get()));
  ChunkDigest digest;
  check(EVP_DigestFinal_ex(copy.context_.get(), digest.data(), nullptr));
  return digest;
}

}  // namespace leat::detail
