// A stream that has the keys of TLS for transports sealed+X, without a handshake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "net/stream.h"

namespace leat::detail {

// Both ends export the same bytes for the same label and context; no secret to anybody.
class KeyedStream final : public Stream {
 public:
  // `inner`: what bytes go by, which outlives this; null: none ever.
  explicit KeyedStream(Stream* inner = nullptr) : inner_(inner) {}

  std::optional<std::size_t> try_read(std::span<std::byte> bytes) override {
    return inner_ != nullptr ? inner_->try_read(bytes) : std::nullopt;
  }
  std::optional<std::size_t> try_write(std::span<const std::byte> bytes) override {
    return inner_ != nullptr ? inner_->try_write(bytes) : std::nullopt;
  }
  bool peer_closed() noexcept override { return inner_ != nullptr && inner_->peer_closed(); }
  Lifeline look_as_lifeline() noexcept override {
    return inner_ != nullptr ? inner_->look_as_lifeline() : Lifeline::kSilent;
  }
  int fd() const override { return inner_ != nullptr ? inner_->fd() : -1; }
  bool encrypted() const override { return true; }
  void exported(std::string_view label, std::span<const std::byte> context,
                std::span<std::byte> bytes) override {
    std::uint64_t sum = 0xcbf2'9ce4'8422'2325;  // FNV-1a
    const auto add = [&](std::byte byte) {
      sum = (sum ^ std::to_integer<std::uint64_t>(byte)) * 0x0000'0100'0000'01b3;
    };
    for (const std::byte byte : std::as_bytes(std::span(label))) add(byte);
    for (const std::byte byte : context) add(byte);
    for (std::byte& byte : bytes) {
      add(std::byte{1});
      byte = static_cast<std::byte>(sum >> 32 & 0xff);
    }
  }
  void abort() noexcept override {
    aborted = true;
    if (inner_ != nullptr) inner_->abort();
  }

  bool aborted = false;

 private:
  Stream* const inner_;
};

}  // namespace leat::detail
