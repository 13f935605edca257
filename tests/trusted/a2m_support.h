// A writer of logs and an independent verifier, for tests of attested append-only memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "leat/trusted/a2m.h"
#include "leat/trusted/a2m_verifier.h"
#include "trusted/forwarding_kernel.h"
#include "trusted/kernel_support.h"

namespace leat::trusted {

constexpr std::uint32_t kManifestLog = 9, kFirstLog = 10, kOtherLog = 11;

// With the sessions of the logs and the MANIFEST.
class LogKernel : public ForwardingKernel {
 protected:
  LogKernel(std::uint32_t device, std::uint64_t epoch, Algorithm algorithm, Role role)
      : ForwardingKernel(local_), local_(device, epoch) {
    for (const std::uint32_t id : {kManifestLog, kFirstLog, kOtherLog}) {
      const Key key = session_key(static_cast<unsigned char>(id));
      local_.provision({.id = id,
                        .role = role,
                        .algorithm = algorithm,
                        .peer = role == Role::kGroupReceiver ? 1U : 0U,
                        .key = key});
    }
    local_.enable();
  }

 private:
  LocalKernel local_;
};

// Attests the logs.
struct WriterKernel : LogKernel {
  explicit WriterKernel(std::uint64_t epoch = kEpoch, Algorithm algorithm = Algorithm::kHmacSha256,
                        std::uint32_t device = 1)
      : LogKernel(device, epoch, algorithm, Role::kGroupSender) {}
};

// The attestation kernel of a party that verifies logs.
struct ReaderKernel : LogKernel {
  explicit ReaderKernel(std::uint64_t epoch = kEpoch, Algorithm algorithm = Algorithm::kHmacSha256)
      : LogKernel(2, epoch, algorithm, Role::kGroupReceiver) {}
};

inline MemoryOptions options_of(const std::string& folder = {}, bool digests = false) {
  MemoryOptions options{
      .folder = folder, .manifest = kManifestLog, .max_manifest_entries = 1 << 16};
  for (const std::uint32_t id : {kFirstLog, kOtherLog})
    options.logs.push_back({.session = id, .max_entries = 1 << 18, .digests = digests});
  return options;
}

inline Nonce nonce_of(std::uint32_t seed) {
  Nonce nonce{};
  for (std::size_t i = 0; i < sizeof seed; ++i) nonce[i] = std::byte(seed >> (8 * i));
  return nonce;
}

inline std::string context_of(std::span<const std::byte> record) {
  const auto entry = read_entry(record);
  if (!entry) return "no entry";
  return {reinterpret_cast<const char*>(entry->context.data()), entry->context.size()};
}

inline A2mVerifier::Lookup shows(const AttestedMemory& memory) {
  return [&memory](std::uint32_t log, std::uint64_t index, Record& record) {
    return memory.lookup(log, index, record);
  };
}

// Asks an honest host.
inline Finding learn(A2mVerifier& verifier, AttestedMemory& memory, std::uint32_t log) {
  const Nonce nonce = verifier.challenge();
  const Record end = memory.end(log, nonce);
  return verifier.learn_bounds(log, end, memory.end(kManifestLog, nonce), shows(memory));
}

}  // namespace leat::trusted
