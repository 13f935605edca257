// Who takes part in a trusted system: nodes and clients, each with an Ed25519 key.
//
// Nodes hold the keys of attestation sessions, clients do not: what a client says it signs, and
// what a node answers it signs (TNIC, ASPLOS 2025, appendix C.1).
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

namespace leat::trusted {

// A node's is the device number of its attestation kernel; clients have numbers of their own.
using PartyId = std::uint32_t;
using PublicKey = std::array<std::byte, 32>;
using Signature = std::array<std::byte, 64>;

// A private key. Owner: the caller; move-only. Threads: any, at the same time.
class LEAT_EXPORT SigningKey {
 public:
  SigningKey();  // a new one
  // From its 32 bytes, which stay the caller's to be wiped. Throws leat::Error kInvalidArgument.
  explicit SigningKey(std::span<const std::byte> seed);
  SigningKey(SigningKey&&) noexcept;
  SigningKey& operator=(SigningKey&&) noexcept;
  ~SigningKey();

  PublicKey public_key() const;
  // Throws leat::Error kResource if OpenSSL fails.
  Signature sign(std::span<const std::byte> message) const;

 private:
  struct Key;
  std::unique_ptr<Key> key_;
};

struct Party {
  PartyId id = 0;
  PublicKey key{};
  std::string address;  // of a node: "host:port"; clients have none
};

// All parties of a system, as whoever set it up says. Owner: the caller; outlives those that use
// it. Threads: any, at the same time.
class LEAT_EXPORT Directory {
 public:
  // Throws leat::Error kInvalidArgument: id 0 or twice, or a key that is none.
  explicit Directory(const std::vector<Party>& parties);
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory();

  // Null: nobody has that number.
  const Party* find(PartyId id) const noexcept;
  // False also if nobody has that number.
  bool verify(PartyId signer, std::span<const std::byte> message,
              std::span<const std::byte> signature) const;

 private:
  struct Known;
  std::map<PartyId, std::unique_ptr<Known>> parties_;
};

}  // namespace leat::trusted
