#include "leat/attest/identity.h"

#include <openssl/evp.h>

#include "leat/error.h"

namespace leat::trusted {
namespace {

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using KeyHandle = std::unique_ptr<EVP_PKEY, FreeKey>;
using ContextHandle = std::unique_ptr<EVP_MD_CTX, FreeContext>;

const unsigned char* data_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

[[noreturn]] void fail(const char* what) {
  throw Error(ErrorCode::kResource, std::string(what) + " failed in OpenSSL");
}

}  // namespace

struct SigningKey::Key {
  static constexpr const char* kWhenEmpty = "this signing key was moved from";
  KeyHandle handle;
};

SigningKey::SigningKey()
    : key_(std::make_unique<Key>(Key{KeyHandle(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"))})) {
  if (!key_->handle) fail("making an Ed25519 key");
}

SigningKey::SigningKey(std::span<const std::byte> seed)
    : key_(std::make_unique<Key>(Key{KeyHandle(
          EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, data_of(seed), seed.size()))})) {
  if (!key_->handle)
    throw Error(ErrorCode::kInvalidArgument,
                "an Ed25519 key has 32 bytes, not " + std::to_string(seed.size()));
}

SigningKey::SigningKey(SigningKey&&) noexcept = default;
SigningKey& SigningKey::operator=(SigningKey&&) noexcept = default;
SigningKey::~SigningKey() = default;

PublicKey SigningKey::public_key() const {
  PublicKey key;
  std::size_t bytes = key.size();
  if (EVP_PKEY_get_raw_public_key(key_->handle.get(), reinterpret_cast<unsigned char*>(key.data()),
                                  &bytes) != 1)
    fail("reading a public key");
  return key;
}

Signature SigningKey::sign(std::span<const std::byte> message) const {
  const ContextHandle context(EVP_MD_CTX_new());
  Signature signature;
  std::size_t bytes = signature.size();
  if (!context ||
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_->handle.get()) != 1 ||
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &bytes,
                     data_of(message), message.size()) != 1)
    fail("signing");
  return signature;
}

struct Directory::Known {
  Party party;
  KeyHandle key;
};

Directory::Directory(const std::vector<Party>& parties) {
  for (const Party& party : parties) {
    KeyHandle key(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, data_of(party.key),
                                              party.key.size()));
    const bool is_new = party.id != 0 && !parties_.contains(party.id);
    if (!key || !is_new)
      throw Error(ErrorCode::kInvalidArgument,
                  "party " + std::to_string(party.id) + " of a directory: " +
                      (is_new ? "its key is not a public key" : "the number is 0 or taken"));
    parties_.emplace(party.id, std::make_unique<Known>(Known{party, std::move(key)}));
  }
}
Directory::~Directory() = default;

const Party* Directory::find(PartyId id) const noexcept {
  const auto known = parties_.find(id);
  return known == parties_.end() ? nullptr : &known->second->party;
}

bool Directory::verify(PartyId signer, std::span<const std::byte> message,
                       std::span<const std::byte> signature) const {
  const auto known = parties_.find(signer);
  if (known == parties_.end()) return false;
  const ContextHandle context(EVP_MD_CTX_new());
  if (!context ||
      EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, known->second->key.get()) != 1)
    fail("verifying a signature");
  return EVP_DigestVerify(context.get(), data_of(signature), signature.size(), data_of(message),
                          message.size()) == 1;
}

}  // namespace leat::trusted
