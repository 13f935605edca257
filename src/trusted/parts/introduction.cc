#include "trusted/parts/introduction.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/wire.h"
#include "leat/error.h"

namespace leat::trusted::detail {
namespace {

using leat::detail::WireReader;
using leat::detail::WireWriter;

// In front of what the keys are derived from, so that no other use of the secret gives them.
constexpr std::string_view kLabel = "leat-trusted-link-v1";
constexpr std::size_t kNonceBytes = 12;

void check_openssl(bool done, const char* what) {
  if (!done)
    throw Error(ErrorCode::kSystem, std::string("OpenSSL cannot ") + what,
                "Check its configuration: openssl list -providers");
}

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(View bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

// HKDF-SHA-256.
void derive(View secret, View purpose, std::span<std::byte> keys) {
  EVP_KDF* kdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  EVP_KDF_CTX* context = kdf == nullptr ? nullptr : EVP_KDF_CTX_new(kdf);
  EVP_KDF_free(kdf);  // the context keeps its own reference
  const auto octets = [](const char* name, View bytes) {
    return OSSL_PARAM_construct_octet_string(name, const_cast<std::byte*>(bytes.data()),
                                             bytes.size());
  };
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, const_cast<char*>("SHA256"), 0),
      octets(OSSL_KDF_PARAM_KEY, secret), octets(OSSL_KDF_PARAM_INFO, purpose),
      OSSL_PARAM_construct_end()};
  const bool derived =
      context != nullptr && EVP_KDF_derive(context, raw(keys.data()), keys.size(), parameters) == 1;
  EVP_KDF_CTX_free(context);
  check_openssl(derived, "derive keys by HKDF");
}

}  // namespace

// --- Tagger

Tagger::Tagger(std::span<const std::byte, kKeyBytes> key) : context_(EVP_CIPHER_CTX_new()) {
  check_openssl(context_ && EVP_EncryptInit_ex(context_.get(), EVP_aes_256_gcm(), nullptr,
                                               raw(View(key)), nullptr) == 1,
                "use AES-256-GCM");
}

void Tagger::append(Bytes& message) {
  const auto tag = next_tag(message);
  message.insert(message.end(), tag.begin(), tag.end());
}

bool Tagger::remove(Bytes& message) {
  if (message.size() < kTagBytes) return false;
  const View all(message);
  const auto tag = next_tag(all.first(all.size() - kTagBytes));
  if (CRYPTO_memcmp(tag.data(), all.last<kTagBytes>().data(), kTagBytes) != 0) return false;
  message.resize(message.size() - kTagBytes);
  return true;
}

std::array<std::byte, Tagger::kTagBytes> Tagger::next_tag(View message) {
  std::array<std::byte, kNonceBytes> nonce{};
  WireWriter(nonce).number(count_++);
  std::array<std::byte, kTagBytes> tag;
  int none = 0;
  EVP_CIPHER_CTX* const context = context_.get();
  check_openssl(EVP_EncryptInit_ex(context, nullptr, nullptr, nullptr, raw(View(nonce))) == 1 &&
                    EVP_EncryptUpdate(context, nullptr, &none, raw(message),
                                      static_cast<int>(message.size())) == 1 &&
                    EVP_EncryptFinal_ex(context, raw(tag.data()), &none) == 1 &&
                    EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag.data()) == 1,
                "compute AES-256-GMAC");
  return tag;
}

// --- Introduction

Introduction::Introduction(const Self& self, PartyId peer)
    : self_(self),
      accepts_(peer == 0),
      peer_(peer),
      secret_(EVP_PKEY_Q_keygen(nullptr, nullptr, "X25519")) {
  std::size_t bytes = mine_.size();
  check_openssl(
      secret_ && EVP_PKEY_get_raw_public_key(secret_.get(), raw(mine_.data()), &bytes) == 1,
      "make an X25519 key");
}

std::optional<Bytes> Introduction::opening() const {
  if (!accepts_) return std::nullopt;
  Bytes message{static_cast<std::byte>(MessageType::kChallenge)};
  message.insert(message.end(), mine_.begin(), mine_.end());
  return message;
}

bool Introduction::take(View message) {
  answer_.reset();
  return !accepts_ && !peers_ ? take_challenge(message) : take_proof(message);
}

bool Introduction::take_challenge(View message) {
  if (type_of(message) != MessageType::kChallenge || message.size() != 1 + mine_.size())
    return false;
  std::ranges::copy(message.subspan(1), peers_.emplace().begin());
  answer_ = proof(MessageType::kAttach);
  return true;
}

// The peer's key and one's own, signed by the peer for this side.
bool Introduction::take_proof(View message) {
  const auto expected = accepts_ ? MessageType::kAttach : MessageType::kAttached;
  const auto content = read_signed(message, expected);
  if (!content || content->target != self_.id || content->epoch != self_.epoch ||
      content->sender == self_.id || content->items.count() != 2 ||
      (!accepts_ && content->sender != peer_))
    return false;
  Items keys = content->items;
  const View challenge = keys.take(), own = keys.take();
  if (!std::ranges::equal(challenge, mine_) || own.size() != Public{}.size() ||
      (peers_ && !std::ranges::equal(own, *peers_)) ||
      !verify_signed(self_.directory, message, *content))
    return false;
  std::ranges::copy(own, peers_.emplace().begin());
  peer_ = content->sender;
  if (accepts_) answer_ = proof(MessageType::kAttached);
  return derive_taggers();
}

// Signs the peer's key and one's own.
Bytes Introduction::proof(MessageType type) const {
  Bytes keys;
  Items::append(keys, *peers_);
  Items::append(keys, mine_);
  return write_signed(self_.key, {.type = type,
                                  .sender = self_.id,
                                  .target = peer_,
                                  .epoch = self_.epoch,
                                  .items = *Items::read(keys, 2)});
}

// Returns false if the peer's key is none: it gives a secret that everybody knows.
bool Introduction::derive_taggers() {
  const std::unique_ptr<EVP_PKEY, Free> peers(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, raw(View(*peers_)), peers_->size()));
  EVP_PKEY_CTX* context = EVP_PKEY_CTX_new(secret_.get(), nullptr);
  std::array<std::byte, 32> secret;
  std::size_t bytes = secret.size();
  const bool agreed = peers && context != nullptr && EVP_PKEY_derive_init(context) == 1 &&
                      EVP_PKEY_derive_set_peer(context, peers.get()) == 1 &&
                      EVP_PKEY_derive(context, raw(secret.data()), &bytes) == 1;
  EVP_PKEY_CTX_free(context);
  if (!agreed) return false;

  const Public& connecting = accepts_ ? *peers_ : mine_;
  const Public& accepting = accepts_ ? mine_ : *peers_;
  Bytes purpose(kLabel.size() + 2 * mine_.size() + 2 * sizeof(PartyId) + sizeof self_.epoch);
  WireWriter writer(purpose);
  writer.bytes(std::as_bytes(std::span(kLabel)), kLabel.size());
  writer.bytes(connecting, connecting.size());
  writer.bytes(accepting, accepting.size());
  writer.number(accepts_ ? peer_ : self_.id);
  writer.number(accepts_ ? self_.id : peer_);
  writer.number(self_.epoch);
  std::array<std::byte, 2 * Tagger::kKeyBytes> keys;
  derive(secret, purpose, keys);
  const auto forth = std::span(keys).first<Tagger::kKeyBytes>();
  const auto back = std::span(keys).last<Tagger::kKeyBytes>();
  taggers_.emplace(
      Taggers{.mine = Tagger(accepts_ ? back : forth), .peers = Tagger(accepts_ ? forth : back)});
  OPENSSL_cleanse(secret.data(), secret.size());
  OPENSSL_cleanse(keys.data(), keys.size());
  return true;
}

}  // namespace leat::trusted::detail
