// An attestation kernel that tests change in part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "leat/attest/attestation.h"

namespace leat::trusted {

// Does what another kernel does; tests override what shall be different.
class ForwardingKernel : public AttestationKernel {
 public:
  explicit ForwardingKernel(AttestationKernel& kernel) : kernel_(kernel) {}
  Verdict attest(const Statement& statement, std::span<const std::byte> payload,
                 Proof& proof) noexcept override {
    return kernel_.attest(statement, payload, proof);
  }
  Verdict verify(std::span<const std::byte> record, Kind expected) noexcept override {
    return kernel_.verify(record, expected);
  }
  Verdict verify_stateless(std::span<const std::byte> record, Kind expected) noexcept override {
    return kernel_.verify_stateless(record, expected);
  }
  std::optional<Counters> counters(std::uint32_t id, std::uint8_t stream) noexcept override {
    return kernel_.counters(id, stream);
  }
  std::optional<Session> session(std::uint32_t id) noexcept override { return kernel_.session(id); }
  std::uint32_t device() const noexcept override { return kernel_.device(); }
  std::uint64_t epoch() const noexcept override { return kernel_.epoch(); }
  std::size_t max_payload_bytes() const noexcept override { return kernel_.max_payload_bytes(); }

 private:
  AttestationKernel& kernel_;
};

}  // namespace leat::trusted
