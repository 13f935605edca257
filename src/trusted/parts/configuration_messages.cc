#include "trusted/parts/configuration_messages.h"

#include <algorithm>

#include "base/wire.h"

namespace leat::trusted::detail {
namespace {

using leat::detail::WireReader;
using leat::detail::WireWriter;

constexpr std::uint8_t kConfigurationVersion = 1;
constexpr std::size_t kDigestBytes = std::tuple_size_v<StateDigest>;
// Type, version (1 each), nodes (2), epoch (8), digest; then each node (4), and the signature.
constexpr std::size_t kConfigurationHeaderBytes = 12 + kDigestBytes;
constexpr std::size_t kMostNodes = 1024;
constexpr std::size_t kEpochBytes = 9;

}  // namespace

std::optional<ConfigurationMessage> configuration_message(View message) noexcept {
  if (message.empty()) return std::nullopt;
  const auto type = std::to_integer<std::uint8_t>(message[0]);
  if (type < static_cast<std::uint8_t>(ConfigurationMessage::kConfiguration) ||
      type > static_cast<std::uint8_t>(ConfigurationMessage::kComplaint))
    return std::nullopt;
  return static_cast<ConfigurationMessage>(type);
}

// Two blobs: what is signed, with the type once more, and the state.
std::optional<Announced> read_configuration(View message) {
  if (configuration_message(message) != ConfigurationMessage::kConfiguration) return std::nullopt;
  const auto blobs = read_blobs(message.subspan(1), 2);
  if (!blobs || blobs->size() != 2) return std::nullopt;
  Announced announced{.signed_part = (*blobs)[0], .state = (*blobs)[1]};
  if (announced.signed_part.size() < kConfigurationHeaderBytes + kSignatureBytes)
    return std::nullopt;
  WireReader reader(announced.signed_part);
  const auto type = reader.number<std::uint8_t>();
  const auto version = reader.number<std::uint8_t>();
  const std::size_t nodes = reader.number<std::uint16_t>();
  announced.configuration.epoch = reader.number<std::uint64_t>();
  std::ranges::copy(reader.bytes(kDigestBytes), announced.start.begin());
  if (type != static_cast<std::uint8_t>(ConfigurationMessage::kConfiguration) ||
      version != kConfigurationVersion || nodes == 0 || nodes > kMostNodes ||
      announced.signed_part.size() != kConfigurationHeaderBytes + 4 * nodes + kSignatureBytes)
    return std::nullopt;
  for (std::size_t i = 0; i < nodes; ++i)
    announced.configuration.nodes.push_back(reader.number<std::uint32_t>());
  return announced;
}

bool verify_configuration(const Directory& directory, PartyId service, const Announced& announced) {
  const View all = announced.signed_part;
  const std::size_t bytes = all.size() - kSignatureBytes;
  return directory.verify(service, all.first(bytes), all.subspan(bytes));
}

Bytes sign_configuration(const SigningKey& key, const Configuration& configuration,
                         const StateDigest& start) {
  const std::size_t bytes = kConfigurationHeaderBytes + 4 * configuration.nodes.size();
  Bytes message(bytes + kSignatureBytes);
  WireWriter writer(message);
  writer.number(static_cast<std::uint8_t>(ConfigurationMessage::kConfiguration));
  writer.number(kConfigurationVersion);
  writer.number(static_cast<std::uint16_t>(configuration.nodes.size()));
  writer.number(configuration.epoch);
  writer.bytes(start, kDigestBytes);
  for (const PartyId node : configuration.nodes) writer.number(node);
  writer.bytes(key.sign(View(message).first(bytes)), kSignatureBytes);
  return message;
}

Bytes write_configuration(View signed_part, View state) {
  Bytes message{static_cast<std::byte>(ConfigurationMessage::kConfiguration)};
  append_blob(message, signed_part);
  append_blob(message, state);
  return message;
}

std::optional<std::uint64_t> read_epoch(View message, ConfigurationMessage expected) {
  if (configuration_message(message) != expected || message.size() != kEpochBytes)
    return std::nullopt;
  return WireReader(message.subspan(1)).number<std::uint64_t>();
}

Bytes write_epoch(ConfigurationMessage type, std::uint64_t epoch) {
  Bytes message(kEpochBytes);
  WireWriter writer(message);
  writer.number(static_cast<std::uint8_t>(type));
  writer.number(epoch);
  return message;
}

std::optional<ReportedHistory> read_history(View message) {
  if (configuration_message(message) != ConfigurationMessage::kHistory ||
      message.size() < kEpochBytes)
    return std::nullopt;
  return ReportedHistory{WireReader(message.subspan(1)).number<std::uint64_t>(),
                         message.subspan(kEpochBytes)};
}

Bytes write_history(std::uint64_t epoch, View proof) {
  Bytes message(kEpochBytes + proof.size());
  WireWriter writer(message);
  writer.number(static_cast<std::uint8_t>(ConfigurationMessage::kHistory));
  writer.number(epoch);
  writer.bytes(proof, proof.size());
  return message;
}

// Blobs: the request, and each reply.
std::optional<Complaint> read_complaint(View message) {
  if (configuration_message(message) != ConfigurationMessage::kComplaint) return std::nullopt;
  auto blobs = read_blobs(message.subspan(1), 1 + kMostNodes);
  if (!blobs || blobs->empty()) return std::nullopt;
  return Complaint{blobs->front(), {blobs->begin() + 1, blobs->end()}};
}

Bytes write_complaint(View request, const std::vector<View>& replies) {
  Bytes message{static_cast<std::byte>(ConfigurationMessage::kComplaint)};
  append_blob(message, request);
  for (const View reply : replies) append_blob(message, reply);
  return message;
}

}  // namespace leat::trusted::detail
