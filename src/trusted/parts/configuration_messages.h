// The messages of a chain's configuration service, little-endian; docs/trusted_systems.md has their
// bytes. Reading checks lengths and nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "leat/trusted/configuration.h"
#include "trusted/parts/messages.h"

namespace leat::trusted::detail {

// In addition to those of MessageType, of which the service receives kEvidence.
enum class ConfigurationMessage : std::uint8_t {
  kConfiguration = 16,  // the present chain; for its nodes also the state to begin with
  kJoin = 17,           // to the service: the configuration that a node or client has
  kEnable = 18,         // to the nodes: all are ready, begin
  kSeal = 19,           // to the nodes: that epoch is over
  kHistory = 20,        // to the service: what a node had executed until kSeal
  kComplaint = 21,      // to the service: a client's request, and the answers that the client has
};
std::optional<ConfigurationMessage> configuration_message(View message) noexcept;

// A configuration that the service signed, and a state. Views into the message.
struct Announced {
  Configuration configuration;
  StateDigest start{};  // of the state; of no bytes: the machine's first state
  View signed_part;
  View state;
};
std::optional<Announced> read_configuration(View message);
bool verify_configuration(const Directory& directory, PartyId service, const Announced& announced);
Bytes sign_configuration(const SigningKey& key, const Configuration& configuration,
                         const StateDigest& start);
Bytes write_configuration(View signed_part, View state);

// kJoin, kEnable, kSeal: only the epoch; 0: none.
std::optional<std::uint64_t> read_epoch(View message, ConfigurationMessage expected);
Bytes write_epoch(ConfigurationMessage type, std::uint64_t epoch);

struct ReportedHistory {
  std::uint64_t epoch = 0;
  View proof;  // empty: of a node that has not begun that epoch, or has lost what it executed
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
