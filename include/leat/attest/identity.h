// The parties of a trusted system: nodes and clients, each with an Ed25519 key.
//
// Nodes hold the keys of attestation sessions; clients do not. Clients sign what they request, and
// nodes sign what they answer (TNIC, ASPLOS 2025, appendix C.1).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "leat/export.h"
#include "leat/held.h"

namespace leat::trusted {

// A node's number is the device number of its attestation kernel; clients have numbers of their
// own.
using PartyId = std::uint32_t;
using PublicKey = std::array<std::byte, 32>;
using Signature = std::array<std::byte, 64>;

// A private key. Owner: the caller; move-only. Threads: any, concurrently.
class LEAT_EXPORT SigningKey {
 public:
  SigningKey();  // generates a key
  // Takes the key's 32 bytes, which the caller still owns and wipes. Throws leat::Error
  // kInvalidArgument.
  explicit SigningKey(std::span<const std::byte> seed);
  SigningKey(SigningKey&&) noexcept;
  SigningKey& operator=(SigningKey&&) noexcept;
  ~SigningKey();

  PublicKey public_key() const;
  // Returns the signature of `message`. Throws leat::Error kResource if OpenSSL fails.
  Signature sign(std::span<const std::byte> message) const;

 private:
  struct LEAT_HIDDEN Key;
  leat::detail::Held<std::unique_ptr<Key>> key_;
};

struct Party {
  PartyId id = 0;
  PublicKey key{};
  std::string address;  // a node's "host:port"; empty for clients
};

// All parties of a system, as its administrator lists them. Owner: the caller; outlives its users.
// Threads: any, concurrently.
class LEAT_EXPORT Directory {
 public:
  // Throws leat::Error kInvalidArgument for number 0, a number that occurs twice, or bytes that are
  // no public key.
  explicit Directory(const std::vector<Party>& parties);
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory();

  // Null if no party has that number.
  const Party* find(PartyId id) const noexcept;
  // Whether `signer` signed `message`; false also if no party has that number. Throws leat::Error
  // kResource if OpenSSL fails.
  bool verify(PartyId signer, std::span<const std::byte> message,
              std::span<const std::byte> signature) const;

 private:
  struct LEAT_HIDDEN Known;
  std::map<PartyId, std::unique_ptr<Known>> parties_;
};

}  // namespace leat::trusted
