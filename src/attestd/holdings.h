// What leat-attestd holds for its clients, and which of them may use it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "base/secret_memory.h"
#include "base/unix_socket.h"
#include "leat/attest/attestation.h"
#include "leat/attest/identity.h"

namespace leat::attestd {

// Keys and counters. Complete before the first client is served, and constant from then on.
class Holdings {
 public:
  // Takes the key from which connections' sessions are derived, from a file as attest_key_file.
  // Throws kInvalidArgument.
  void take_key_file(const std::string& path);
  // Takes the device's own sessions; pair sessions among them serve connections too. Throws
  // kInvalidArgument for sessions that the attestor refuses.
  void begin(std::uint32_t device, std::uint64_t epoch);
  void provision(const trusted::Session& session);
  // Takes the Ed25519 seed with which replies to clients are signed. Throws kInvalidArgument.
  void take_reply_key(std::span<const std::byte> seed) { reply_key_.emplace(seed); }
  void enable();

  // Null if there are no sessions of its own.
  trusted::LocalKernel* device() const { return device_.get(); }
  // Null if there is none.
  const trusted::SigningKey* reply_key() const { return reply_key_ ? &*reply_key_ : nullptr; }
  // What a client is shown that asks with this random number for a proof of who serves: the public
  // half of the reply key or, without one, of a key that is derived from the key file's, and the
  // signature to_be_proven() by this process. No value if there is neither key.
  struct Introduction {
    trusted::PublicKey key;
    trusted::Signature signature;
  };
  std::optional<Introduction> introduce(std::span<const std::byte> nonce) const;
  // The key of connections on that session; 0 means the key file's. Empty if there is none.
  std::span<const std::byte> channel_key(std::uint32_t session, trusted::Algorithm algorithm) const;

 private:
  // Read before the sandbox forbids it.
  const std::uint64_t pid_namespace_ = leat::detail::pid_namespace();

  struct ChannelKey {
    std::size_t bytes;
    leat::detail::SecretMemory memory;
    std::optional<trusted::Algorithm> algorithm;  // none: any
  };
  void keep(std::uint32_t session, std::span<const std::byte> key,
            std::optional<trusted::Algorithm> algorithm);

  std::unique_ptr<trusted::LocalKernel> device_;
  std::optional<trusted::SigningKey> reply_key_;
  std::map<std::uint32_t, ChannelKey> channel_keys_;
};

// The sessions that each user may use. Without any rule, every user whom the socket's permissions
// admit may use all.
class AccessRules {
 public:
  // "USER" for all sessions, "USER:1,2" for some of them; 0 is the key file's. A user is a name or
  // a number. Throws kInvalidArgument.
  void add(const std::string& rule);

  bool allows(uid_t user) const { return rules_.empty() || rules_.contains(user); }
  bool allows(uid_t user, std::uint32_t session) const;

 private:
  std::map<uid_t, std::optional<std::set<std::uint32_t>>> rules_;  // no set: all
};

}  // namespace leat::attestd
