#include "attest/kernel_ring.h"

#include <cstring>

#include "base/wire.h"

namespace leat::trusted::detail {
namespace {

// "ltw4": its last letter is the protocol's version, of which requests are a part.
constexpr std::uint32_t kRingMagic = 0x3477'746c;
constexpr std::size_t kUsedBytes = 4 + 1 + 3 + 4 + 4 + 4 + 8;

}  // namespace

std::vector<std::byte> to_be_signed(std::span<const std::byte> record) {
  constexpr std::size_t kPurposeBytes = 14;
  std::vector<std::byte> bytes(kPurposeBytes + record.size());
  leat::detail::WireWriter writer(bytes);
  writer.text("leat-signed-v1", kPurposeBytes);
  writer.bytes(record, record.size());
  return bytes;
}

std::vector<std::byte> to_be_proven(std::span<const std::byte> nonce, std::uint32_t process,
                                    std::uint64_t pid_namespace) {
  constexpr std::size_t kPurposeBytes = 14;
  std::vector<std::byte> bytes(kPurposeBytes + nonce.size() + 4 + 8);
  leat::detail::WireWriter writer(bytes);
  writer.text("leat-daemon-v1", kPurposeBytes);
  writer.bytes(nonce, nonce.size());
  writer.number(process);
  writer.number(pid_namespace);
  return bytes;
}

std::optional<Packed> take_packed(std::span<const std::byte>& list) noexcept {
  Packed packed;
  if (list.size() < sizeof packed.request) return std::nullopt;
  std::memcpy(&packed.request, list.data(), sizeof packed.request);
  const auto rest = list.subspan(sizeof packed.request);
  if (packed.request.bytes > rest.size()) return std::nullopt;
  packed.data = rest.first(packed.request.bytes);
  list = rest.subspan(packed.request.bytes);
  return packed;
}

std::array<std::byte, kWelcomeBytes> encode(const Welcome& welcome) noexcept {
  std::array<std::byte, kWelcomeBytes> message{};
  leat::detail::WireWriter writer(message);
  writer.number(kRingMagic);
  writer.number(static_cast<std::uint8_t>(welcome.answer));
  writer.bytes({}, 3);
  writer.number(welcome.shape.slots);
  writer.number(welcome.shape.max_payload_bytes);
  writer.number(welcome.device);
  writer.number(welcome.epoch);
  return message;
}

std::optional<Welcome> decode_welcome(std::span<const std::byte> message) noexcept {
  if (message.size() != kWelcomeBytes) return std::nullopt;
  leat::detail::WireReader reader(message);
  if (reader.number<std::uint32_t>() != kRingMagic) return std::nullopt;
  Welcome welcome;
  welcome.answer = static_cast<Welcome::Answer>(reader.number<std::uint8_t>());
  if (welcome.answer > Welcome::Answer::kStranger || !reader.zeros(3)) return std::nullopt;
  welcome.shape.slots = reader.number<std::uint32_t>();
  welcome.shape.max_payload_bytes = reader.number<std::uint32_t>();
  welcome.device = reader.number<std::uint32_t>();
  welcome.epoch = reader.number<std::uint64_t>();
  if (!welcome.shape.sound() || !reader.zeros(kWelcomeBytes - kUsedBytes)) return std::nullopt;
  return welcome;
}

}  // namespace leat::trusted::detail
