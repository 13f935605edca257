// How two parties prove to each other who they are when they connect, and how each of their
// messages is vouched for from then on.
//
// The side that accepts sends a fresh X25519 key; the side that connects signs that key and a fresh
// one of its own; the side that accepts signs both, too. Each so answers a challenge, and a key for
// each direction comes of the two: signed Diffie-Hellman with both names in both signatures (SIGMA,
// Krawczyk, CRYPTO 2003). A message then ends with a tag of AES-256-GMAC, whose nonce is how many
// messages went before. So what others say on the way, say again, leave out or put in another order
// is not taken for the party's, with or without TLS. Nothing is kept secret.
#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "trusted/parts/messages.h"

namespace leat::trusted::detail {

// One side of connections. What it refers to outlives them.
struct Self {
  const Directory& directory;
  const SigningKey& key;
  PartyId id = 0;
  std::uint64_t epoch = 0;  // that both sides must have
};

// The tags of the messages of one direction. Threads: one at a time.
class Tagger {
 public:
  static constexpr std::size_t kKeyBytes = 32, kTagBytes = 16;

  explicit Tagger(std::span<const std::byte, kKeyBytes> key);
  // Appends the tag of the next message.
  void append(Bytes& message);
  // Whether that is the next message; removes its tag.
  [[nodiscard]] bool remove(Bytes& message);

 private:
  std::array<std::byte, kTagBytes> next_tag(View message);

  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
  };
  std::unique_ptr<EVP_CIPHER_CTX, Free> context_;
  std::uint64_t count_ = 0;
};

// One side of a connection until both have proved who they are. Calls throw leat::Error kSystem if
// OpenSSL fails.
class Introduction {
 public:
  struct Taggers {
    Tagger mine, peers;
  };

  Introduction(const Self& self, PartyId peer);  // peer 0: accepts whoever it proves to be

  // What this side says before it has heard anything.
  std::optional<Bytes> opening() const;
  // The peer's next message. Returns false if no correct peer says that.
  [[nodiscard]] bool take(View message);
  // What this side says to what it took last.
  const std::optional<Bytes>& answer() const { return answer_; }
  // Once the peer has proved its identity.
  bool is_done() const { return taggers_.has_value(); }
  PartyId peer() const { return peer_; }
  Taggers take_taggers() { return std::move(*taggers_); }

 private:
  using Public = std::array<std::byte, 32>;

  bool take_challenge(View message);
  bool take_proof(View message);
  Bytes proof(MessageType type) const;
  bool derive_taggers();

  struct Free {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  };
  const Self self_;
  const bool accepts_;
  PartyId peer_;
  std::unique_ptr<EVP_PKEY, Free> secret_;
  Public mine_{};
  std::optional<Public> peers_;
  std::optional<Bytes> answer_;
  std::optional<Taggers> taggers_;
};

}  // namespace leat::trusted::detail
