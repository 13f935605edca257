#include "conn/choice.h"

#include <algorithm>

#include "base/quote.h"
#include "leat/error.h"

namespace leat::detail {
namespace {

constexpr const char* kAuto = "auto";

const TransportRule* find_transport(const std::string& name) {
  const auto* found = std::find_if(kTransports.begin(), kTransports.end(),
                                   [&](const TransportRule& rule) { return rule.name == name; });
  return found == kTransports.end() ? nullptr : found;
}

std::string transport_names() {
  std::string names = kAuto;
  for (const TransportRule& rule : kTransports) names += std::string(", ") + rule.name;
  return names;
}

std::string excluded_by(const char* side, const Hello& hello) {
  return std::string("excluded by the ") + side + "'s device = " + quoted(hello.device_setting);
}

void add(std::string& reasons, const std::string& reason) {
  if (!reasons.empty()) reasons += ", ";
  reasons += reason;
}

std::string shm_obstacle(const HostIdentity& client, const HostIdentity& listener, bool& is_loss) {
  is_loss = false;
  if (!client.boot_known() || !listener.boot_known()) return "a host's boot id is not readable";
  if (client.boot_id != listener.boot_id) return "other host";
  is_loss = true;
  if (client.user != listener.user) {
    return "other user (client " + std::to_string(client.user) + ", listener " +
           std::to_string(listener.user) + ")";
  }
  if (client.network != listener.network || client.network == 0) return "other network namespace";
  is_loss = false;
  return {};
}

}  // namespace

void check_choice(const Settings& settings, const DeviceList& devices) {
  if (settings.transport == kAuto) return;
  const TransportRule* rule = find_transport(settings.transport);
  if (rule == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "no transport is named " + quoted(settings.transport),
                "There are: " + transport_names() + ".");
  }
  const bool rdma = devices.allows(DeviceKind::kShm) || devices.allows(DeviceKind::kIb);
  if (rule->rdma ? rdma : devices.allows(DeviceKind::kTcp)) return;
  throw Error(ErrorCode::kInvalidArgument,
              "transport " + settings.transport + " cannot run on device " +
                  quoted(devices.text()) + ": it needs " + (rule->rdma ? "shm or ib" : "tcp"),
              "Leave one of the two settings at auto.");
}

std::string agree_on_transport(const Hello& client, const Hello& listener) {
  if (client.transport != kAuto && find_transport(client.transport) == nullptr) {
    throw Error(ErrorCode::kUnavailable,
                "the listener knows no transport " + quoted(client.transport),
                "It knows: " + transport_names() + ".");
  }
  if (listener.transport == kAuto || client.transport == listener.transport) {
    return client.transport;
  }
  if (client.transport == kAuto) return listener.transport;
  throw Error(ErrorCode::kUnavailable,
              "the client asks for transport " + client.transport + ", the listener for " +
                  listener.transport,
              "Leave the setting transport at auto on one side.");
}

std::size_t receive_requests_of(const std::string& transport) {
  const TransportRule* rule = find_transport(transport);
  return rule == nullptr ? 0 : rule->receive_requests;
}

std::string transport_on(DeviceKind kind, const std::string& agreed) {
  const bool rdma = kind != DeviceKind::kTcp;
  for (const TransportRule& rule : kTransports) {
    if (rule.rdma == rdma && (agreed == kAuto || agreed == rule.name)) return rule.name;
  }
  return {};
}

Verdict judge(DeviceKind kind, const Hello& client, const Hello& listener,
              const std::string& agreed_transport) {
  Verdict verdict;
  const DeviceState& at_client = client.device(kind);
  const DeviceState& at_listener = listener.device(kind);
  if (transport_on(kind, agreed_transport).empty()) {
    verdict.why_not = "transport " + agreed_transport + " does not run on it";
  } else if (at_client.use == DeviceUse::kExcluded || at_listener.use == DeviceUse::kExcluded) {
    if (at_client.use == DeviceUse::kExcluded) add(verdict.why_not, excluded_by("client", client));
    if (at_listener.use == DeviceUse::kExcluded) {
      add(verdict.why_not, excluded_by("listener", listener));
    }
  } else {
    if (kind == DeviceKind::kShm) {
      verdict.why_not = shm_obstacle(client.host, listener.host, verdict.is_loss);
    }
    for (const auto& [side, state] :
         {std::pair("client: ", &at_client), std::pair("listener: ", &at_listener)}) {
      if (state->use != DeviceUse::kUnusable) continue;
      verdict.is_loss = true;
      add(verdict.why_not, side + state->why_not);
    }
    verdict.possible = verdict.why_not.empty();
  }
  return verdict;
}

}  // namespace leat::detail
