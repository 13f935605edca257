// The messages of a chain's configuration service, little-endian; docs/trusted_systems.md has their
// bytes. Reading believes nothing: what it returns has the right lengths, and proves nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "leat/trusted/configuration.h"
#include "systems/messages.h"

namespace leat::trusted::detail {

// Beside those of MessageType, of which kEvidence comes to the service too.
enum class ConfigurationMessage : std::uint8_t {
  kConfiguration = 16,  // who is the chain now; to its nodes also the state with which they begin
  kJoin = 17,           // to the service: which configuration a node or client has
  kEnable = 18,         // to the nodes: all have it, begin
  kSeal = 19,           // to the nodes: that epoch is over
  kHistory = 20,        // to the service: what a node had executed by then
  kComplaint = 21,      // to the service: a client's request, and the answers that it has
};
std::optional<ConfigurationMessage> configuration_message(View message) noexcept;

// A configuration, as the service signed it, and a state. Views into the message.
struct Announced {
  Configuration configuration;
  StateDigest start{};  // of the state; of no bytes: the machine's first
  View signed_part;
  View state;
};
std::optional<Announced> read_configuration(View message);
bool verify_configuration(const Directory& directory, PartyId service, const Announced& announced);
Bytes sign_configuration(const SigningKey& key, const Configuration& configuration,
                         const StateDigest& start);
Bytes write_configuration(View signed_part, View state);

// kJoin, kEnable, kSeal: the epoch alone; 0: none.
std::optional<std::uint64_t> read_epoch(View message, ConfigurationMessage expected);
Bytes write_epoch(ConfigurationMessage type, std::uint64_t epoch);

struct ReportedHistory {
  std::uint64_t epoch = 0;
  View proof;
};
std::optional<ReportedHistory> read_history(View message);
Bytes write_history(std::uint64_t epoch, View proof);

struct Complaint {
  View request;
  std::vector<View> replies;
};
std::optional<Complaint> read_complaint(View message);
Bytes write_complaint(View request, const std::vector<View>& replies);

}  // namespace leat::trusted::detail
