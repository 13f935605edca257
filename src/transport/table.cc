#include "transport/table.h"

#include <algorithm>
#include <array>

#include "leat/error.h"
#include "transport/attested/attested.h"
#include "transport/batched/batched.h"
#include "transport/chunked/chunked.h"
#include "transport/confirm_each/confirm_each.h"
#include "transport/planned/planned.h"
#include "transport/ring/ring.h"
#include "transport/sealed/sealed.h"
#include "transport/tcp/tcp.h"

namespace leat::detail {
namespace {

constexpr std::array kTransports = std::to_array<TransportRow>({
    {"ring", true, 1024, "write-with-immediate into a ring per protocol context, received in place",
     RingTransport::make},
    {"planned", true, 1024,
     "ring, and beside it message arrays whose places are planned; by name only",
     PlannedTransport::make},
    {"batched", true, 64,
     "slots filled and given back many at a time, by bitmaps that each side reads; by name only",
     make_batched},
    {"confirm-each", true, 4096,
     "the same slots, each message announced and each slot given back alone; by name only",
     make_confirm_each},
    {"chunked", true, 1024,
     "large messages in chunks that a far, lossy path can hold, received in place; by name only",
     ChunkedTransport::make},
    {"tcp", false, 0,
     "framed messages on the TCP connection, for machines without RDMA between them",
     TcpTransport::make},
});

constexpr std::array kDecorators = std::to_array<DecoratorRow>({
    {"attested+",
     "each message attested by its sender and verified before it is handed out; by name only",
     false, AttestedTransport::make},
    {"sealed+", "each message encrypted with keys that TLS agreed on; by name only", true,
     SealedTransport::make},
});

ReplaceTransport replace_transport = nullptr;

// A transport's name, taken apart.
struct Parts {
  const DecoratorRow* decorator = nullptr;
  const TransportRow* transport = nullptr;  // null: unknown
};

Parts parts_of(std::string_view name) {
  Parts parts;
  for (const DecoratorRow& row : kDecorators) {
    if (!name.starts_with(row.prefix)) continue;
    parts.decorator = &row;
    name.remove_prefix(std::string_view(row.prefix).size());
    break;
  }
  const auto* found = std::ranges::find(kTransports, name, &TransportRow::name);
  if (found != kTransports.end()) parts.transport = found;
  return parts;
}

}  // namespace

std::span<const TransportRow> transport_rows() { return kTransports; }
std::span<const DecoratorRow> decorator_rows() { return kDecorators; }

const TransportRow* find_transport(std::string_view name) { return parts_of(name).transport; }

const DecoratorRow* find_decorator(std::string_view name) { return parts_of(name).decorator; }

std::vector<TransportDescription> describe_transports() {
  std::vector<TransportDescription> all;
  all.reserve(std::size(kTransports) * (1 + std::size(kDecorators)));
  for (const TransportRow& row : kTransports) all.push_back({row.name, row.rdma, row.help});
  for (const DecoratorRow& decorator : kDecorators) {
    for (const TransportRow& row : kTransports) {
      all.push_back({decorator.prefix + std::string(row.name), row.rdma,
                     row.name + std::string(", ") + decorator.help});
    }
  }
  return all;
}

QueueDepths queue_depths(const Device& device, std::string_view transport) {
  const TransportRow* row = find_transport(transport);
  const Limits limits = device.limits();
  if (!limits.immediates)
    throw Error(ErrorCode::kUnavailable,
                "device " + device.info().name +
                    " has no writes with immediate data, which transport " +
                    std::string(transport) + " needs",
                "With device=auto and transport=auto such connections go over TCP.");
  QueueDepths depths;
  depths.send_requests = std::min(depths.send_requests, limits.max_send_requests);
  depths.receive_requests =
      std::min(row == nullptr ? 0 : row->receive_requests, limits.max_receive_requests);
  return depths;
}

std::unique_ptr<Transport> make_transport(std::string_view name, Endpoint end,
                                          const Settings& settings) {
  const auto [decorator, transport] = parts_of(name);
  if (transport == nullptr)
    throw Error(ErrorCode::kUnavailable, "no transport is named '" + std::string(name) + "'");
  auto made = decorator == nullptr ? transport->make(std::move(end), settings)
                                   : decorator->make(transport->make, std::move(end), settings);
  return replace_transport == nullptr ? std::move(made) : replace_transport(std::move(made));
}

void replace_transports(ReplaceTransport replace) { replace_transport = replace; }

}  // namespace leat::detail
