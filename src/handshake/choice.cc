#include "handshake/choice.h"

#include <algorithm>
#include <atomic>
#include <string_view>
#include <utility>

#include "base/quote.h"
#include "leat/error.h"
#include "net/stream.h"
#include "net/tls_context.h"
#include "transport/table.h"

namespace leat::detail {
namespace {

constexpr const char* kAuto = "auto";

// Relaxed: tests change it while no connection is being made.
std::atomic<bool> all_leave{false};

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
  const bool by_name = settings.transport != kAuto;
  const TransportRow* row = by_name ? find_transport(settings.transport) : nullptr;
  if (by_name && row == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "no transport is named " + quoted(settings.transport),
                "There are: " + known_transports());
  }
  const bool tls = tls_wanted(settings);
  if (is_sealed(settings.transport) && !tls) {
    throw Error(ErrorCode::kInvalidArgument,
                "transport " + settings.transport + " needs TLS, whose keys it uses", kSetAKey);
  }
  const Wish wish{settings.transport, wishes_sealing(settings)};
  std::string needed;
  std::string clear;
  for (const DeviceRow& device : device_rows()) {
    if (by_name && device.rdma() != row->rdma) continue;
    if (!devices.allows(device)) {
      needed += (needed.empty() ? "" : " or ") + std::string(device.kind);
      continue;
    }
    clear = forbidden_in_clear(settings, device, transport_on(device, wish), tls);
    if (clear.empty()) return;
  }
  if (!clear.empty()) throw Error(ErrorCode::kInvalidArgument, clear);
  if (!by_name) return;
  throw Error(ErrorCode::kInvalidArgument,
              "transport " + settings.transport + " cannot run on device " +
                  quoted(devices.text()) + ": it needs " + needed,
              "Leave one of the two settings at auto.");
}

Wish agree_on_transport(const Hello& client, const Hello& listener) {
  const bool client_leaves = client.transport == kAuto;
  const bool seals = client.seals || listener.seals;
  if (!client_leaves && find_transport(client.transport) == nullptr) {
    throw Error(ErrorCode::kUnavailable,
                "the listener knows no transport " + quoted(client.transport),
                "It knows: " + known_transports());
  }
  if (client_leaves) return {listener.transport, seals};
  if (listener.transport == kAuto || client.transport == listener.transport)
    return {client.transport, seals};
  throw Error(ErrorCode::kUnavailable,
              "the client asks for transport " + client.transport + ", the listener for " +
                  listener.transport,
              "Leave the setting transport at auto on one side.");
}

std::string transport_on(const DeviceRow& device, const Wish& wish) {
  const auto rows = transport_rows();
  const TransportRow* row = nullptr;
  if (wish.transport != kAuto)
    row = find_transport(wish.transport);
  else if (const auto first = std::ranges::find(rows, device.rdma(), &TransportRow::rdma);
           first != rows.end())
    row = &*first;
  if (row == nullptr || row->rdma != device.rdma()) return "";
  std::string name = wish.transport == kAuto ? row->name : wish.transport;
  return wish.seals && device.rdma() && leaves_host(device) ? sealed_form(name) : name;
}

bool may_answer(const DeviceRow& device, const std::string& answer, const std::string& transport) {
  if (answer.empty()) return false;
  if (transport == kAuto && transport_on(device, {answer}) == answer) return true;
  return answer == transport_on(device, {transport, false}) ||
         answer == transport_on(device, {transport, true});
}

bool wishes_sealing(const Settings& settings) {
  return settings.confidential != Confidential::kOff && tls_wanted(settings);
}

bool leaves_host(const DeviceRow& device) {
  return !device.shares_memory || all_leave.load(std::memory_order_relaxed);
}

void count_all_as_leaving(bool all) { all_leave.store(all, std::memory_order_relaxed); }

bool in_clear(const DeviceRow& device, const std::string& transport, bool tls) {
  if (!leaves_host(device)) return false;
  return !tls || (device.rdma() && !is_sealed(transport));
}

std::string forbidden_in_clear(const Settings& settings, const DeviceRow& device,
                               const std::string& transport, bool tls) {
  if (settings.confidential != Confidential::kRequire || !in_clear(device, transport, tls))
    return "";
  const std::string_view advice = tls ? "Set a transport with sealed+ before its name." : kSetAKey;
  return "messages of transport " + transport +
         " would go in clear, which confidential = require forbids. " +
         std::string(advice.substr(0, advice.size() - 1));  // a part of a longer sentence
}

Verdict judge(const DeviceRow& device, const Hello& client, const Hello& listener,
              const Wish& agreed) {
  Verdict verdict;
  const struct {
    const char* name;
    const Hello& hello;
    const DeviceState* state;
  } sides[] = {{"client", client, client.find_device(device.kind)},
               {"listener", listener, listener.find_device(device.kind)}};
  if (transport_on(device, agreed).empty()) {
    verdict.why_not = "transport " + agreed.transport + " does not run on it";
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
