#include "handshake/choice.h"

#include <algorithm>
#include <utility>

#include "base/quote.h"
#include "leat/error.h"
#include "net/stream.h"
#include "net/tls_context.h"
#include "transport/table.h"

namespace leat::detail {
namespace {

constexpr const char* kAuto = "auto";
constexpr const char* kSealed = "sealed+";  // of the table's decorators the one that encrypts
const std::string kSealedAuto = std::string(kSealed) + kAuto;

std::string known_transports() {
  std::string names = kAuto;
  for (const TransportRow& row : transport_rows()) names += std::string(", ") + row.name;
  names += "; and before each of these but auto:";
  for (const Decoration& decoration : decorations()) names += " " + decoration.prefix;
  return names + ".";
}

std::string excluded_by(const char* side, const Hello& hello) {
  return std::string("excluded by the ") + side + "'s device = " + quoted(hello.device_setting);
}

void add(std::string& reasons, const std::string& reason) {
  if (!reasons.empty()) reasons += ", ";
  reasons += reason;
}

}  // namespace

void check_choice(const Settings& settings, const DeviceList& devices) {
  if (settings.transport == kAuto) return;
  const TransportRow* row = find_transport(settings.transport);
  if (row == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "no transport is named " + quoted(settings.transport),
                "There are: " + known_transports());
  }
  if (is_sealed(settings.transport) && !tls_wanted(settings)) {
    throw Error(ErrorCode::kInvalidArgument,
                "transport " + settings.transport + " needs TLS, whose keys it uses", kSetAKey);
  }
  std::string needed;
  for (const DeviceRow& device : device_rows()) {
    if (device.rdma() != row->rdma) continue;
    if (devices.allows(device)) return;
    needed += (needed.empty() ? "" : " or ") + std::string(device.kind);
  }
  throw Error(ErrorCode::kInvalidArgument,
              "transport " + settings.transport + " cannot run on device " +
                  quoted(devices.text()) + ": it needs " + needed,
              "Leave one of the two settings at auto.");
}

std::string agree_on_transport(const Hello& client, const Hello& listener) {
  const bool client_leaves = leaves_choice(client.transport);
  if (!client_leaves && find_transport(client.transport) == nullptr) {
    throw Error(ErrorCode::kUnavailable,
                "the listener knows no transport " + quoted(client.transport),
                "It knows: " + known_transports());
  }
  if (client_leaves && leaves_choice(listener.transport))
    return client.transport == kAuto ? listener.transport : client.transport;
  if (leaves_choice(listener.transport) || client.transport == listener.transport) {
    return client.transport;
  }
  if (client_leaves) return listener.transport;
  throw Error(ErrorCode::kUnavailable,
              "the client asks for transport " + client.transport + ", the listener for " +
                  listener.transport,
              "Leave the setting transport at auto on one side.");
}

std::string transport_on(const DeviceRow& device, const std::string& agreed) {
  if (!leaves_choice(agreed)) {
    const TransportRow* row = find_transport(agreed);
    return row != nullptr && row->rdma == device.rdma() ? agreed : "";
  }
  const auto rows = transport_rows();
  const auto first = std::ranges::find(rows, device.rdma(), &TransportRow::rdma);
  if (first == rows.end()) return "";
  const bool seals = agreed == kSealedAuto && device.rdma() && !device.shares_memory;
  return seals ? kSealed + std::string(first->name) : first->name;
}

std::string wished_transport(const Settings& settings) {
  const bool seals = settings.confidential != Confidential::kOff && tls_wanted(settings);
  return settings.transport == kAuto && seals ? kSealedAuto : settings.transport;
}

bool leaves_choice(const std::string& transport) {
  return transport == kAuto || transport == kSealedAuto;
}

bool in_clear(const DeviceRow& device, const std::string& transport, bool tls) {
  if (device.shares_memory) return false;
  return !tls || (device.rdma() && !is_sealed(transport));
}

std::string forbidden_in_clear(const Settings& settings, const DeviceRow& device,
                               const std::string& transport, bool tls) {
  if (settings.confidential != Confidential::kRequire || !in_clear(device, transport, tls))
    return "";
  return "messages of transport " + transport +
         " would go in clear, which confidential = require forbids. " +
         (tls ? "Leave transport at auto on both sides, or set one with sealed+ before its name."
              : kSetAKey);
}

Verdict judge(const DeviceRow& device, const Hello& client, const Hello& listener,
              const std::string& agreed_transport) {
  Verdict verdict;
  const struct {
    const char* name;
    const Hello& hello;
    const DeviceState* state;
  } sides[] = {{"client", client, client.find_device(device.kind)},
               {"listener", listener, listener.find_device(device.kind)}};
  if (transport_on(device, agreed_transport).empty()) {
    verdict.why_not = "transport " + agreed_transport + " does not run on it";
    return verdict;
  }
  for (const auto& side : sides) {
    if (side.state == nullptr)
      add(verdict.why_not, std::string("the leat of the ") + side.name + " does not know it");
    else if (side.state->use == DeviceUse::kExcluded)
      add(verdict.why_not, excluded_by(side.name, side.hello));
  }
  if (!verdict.why_not.empty()) return verdict;
  if (device.obstacle != nullptr) {
    const Obstacle obstacle = device.obstacle(client.host, listener.host);
    verdict.why_not = obstacle.text;
    verdict.is_loss = obstacle.is_loss;
  }
  for (const auto& side : sides) {
    if (side.state->use != DeviceUse::kUnusable) continue;
    verdict.is_loss = true;
    add(verdict.why_not, std::string(side.name) + ": " + side.state->why_not);
  }
  verdict.possible = verdict.why_not.empty();
  return verdict;
}

}  // namespace leat::detail
