// Devices with sessions, and records made from what attestation kernels attest: for tests of
// attestation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "leat/attest/attestation.h"

namespace leat::trusted {

using Record = std::vector<std::byte>;
using Key = std::vector<std::byte>;

constexpr std::uint64_t kEpoch = 7;
constexpr std::uint32_t kSession = 100;

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline Key session_key(unsigned char seed, std::size_t bytes = 32) {
  return Key(bytes, std::byte{seed});
}

inline std::string text_of(std::span<const std::byte> record) {
  const auto payload = payload_of(record);
  return {reinterpret_cast<const char*>(payload.data()), payload.size()};
}

inline Record put_together(const Proof& proof, std::span<const std::byte> payload) {
  Record record(payload.size() + kRecordOverheadBytes);
  write_record(proof, payload, record);
  return record;
}

// Empty if the kernel refuses.
inline Record attested(AttestationKernel& kernel, std::string_view payload,
                       const Statement& statement = {.session = kSession}) {
  Proof proof;
  if (kernel.attest(statement, bytes_of(payload), proof) != Verdict::kOk) return {};
  return put_together(proof, bytes_of(payload));
}

// Two devices, 1 and 2, with one session between them.
struct Pair {
  explicit Pair(Algorithm algorithm = Algorithm::kHmacSha256, std::uint8_t streams = 1,
                const Key& key_a = session_key(1), const Key& key_b = session_key(1))
      : a(1, kEpoch), b(2, kEpoch) {
    a.provision({.id = kSession,
                 .role = Role::kPair,
                 .algorithm = algorithm,
                 .peer = 2,
                 .streams = streams,
                 .key = key_a});
    b.provision({.id = kSession,
                 .role = Role::kPair,
                 .algorithm = algorithm,
                 .peer = 1,
                 .streams = streams,
                 .key = key_b});
    a.enable();
    b.enable();
  }
  LocalKernel a;
  LocalKernel b;
};

}  // namespace leat::trusted
