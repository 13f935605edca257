#include "transport/table.h"

#include <algorithm>
#include <array>
#include <utility>

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

struct DecoratorRow {
  const char* prefix;
  const char* help;
  bool needs_tls;  // it seals: the keys of its messages come from there
  MakeDecorator* make;
};

// Attested before sealed: a record that a third party is shown must be what was attested, not what
// one connection's keys have made of it; and what is sealed hides who attested what.
constexpr std::array kDecorators = std::to_array<DecoratorRow>({
    {"attested+", "each message attested by its sender and verified before it is handed out", false,
     AttestedTransport::make},
    {"sealed+", "each message encrypted with keys that TLS agreed on", true, SealedTransport::make},
});

ReplaceTransport replace_transport = nullptr;

// A transport's name, taken apart.
struct Parts {
  std::vector<const DecoratorRow*> decorators;
  const TransportRow* transport = nullptr;  // null: unknown
};

Parts parts_of(std::string_view name) {
  Parts parts;
  for (const DecoratorRow& row : kDecorators) {
    if (!name.starts_with(row.prefix)) continue;
    parts.decorators.push_back(&row);
    name.remove_prefix(std::string_view(row.prefix).size());
  }
  const auto* found = std::ranges::find(kTransports, name, &TransportRow::name);
  if (found != kTransports.end()) parts.transport = found;
  return parts;
}

}  // namespace

std::span<const TransportRow> transport_rows() { return kTransports; }

const TransportRow* find_transport(std::string_view name) { return parts_of(name).transport; }

bool is_decorated(std::string_view name) { return !parts_of(name).decorators.empty(); }

bool is_sealed(std::string_view name) {
  return std::ranges::any_of(parts_of(name).decorators, &DecoratorRow::needs_tls);
}

std::string sealed_form(std::string_view name) {
  const Parts parts = parts_of(name);
  std::string sealed;
  for (const DecoratorRow& row : kDecorators)
    if (row.needs_tls || std::ranges::count(parts.decorators, &row) != 0) sealed += row.prefix;
  return sealed + parts.transport->name;
}

std::vector<Decoration> decorations() {
  std::vector<Decoration> all;
  for (const DecoratorRow& row : kDecorators) {
    const std::size_t before = all.size();
    for (std::size_t i = 0; i < before; ++i)
      all.push_back({all[i].prefix + row.prefix, all[i].help + std::string("; ") + row.help});
    all.push_back({row.prefix, row.help});
  }
  return all;
}

std::vector<TransportDescription> describe_transports() {
  const std::vector<Decoration> decorated = decorations();
  std::vector<TransportDescription> all;
  all.reserve(std::size(kTransports) * (1 + decorated.size()));
  for (const TransportRow& row : kTransports) all.push_back({row.name, row.rdma, row.help});
  for (const Decoration& decoration : decorated) {
    for (const TransportRow& row : kTransports) {
      all.push_back(
          {decoration.prefix + row.name, row.rdma, row.name + std::string(", ") + decoration.help});
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
  const Parts parts = parts_of(name);
  if (parts.transport == nullptr)
    throw Error(ErrorCode::kUnavailable, "no transport is named '" + std::string(name) + "'");
  MakeInner make = parts.transport->make;
  for (auto last = parts.decorators.rbegin(); last != parts.decorators.rend(); ++last) {
    make = [row = *last, inner = std::move(make)](Endpoint inner_end,
                                                  const Settings& inner_settings) {
      return row->make(inner, std::move(inner_end), inner_settings);
    };
  }
  auto made = make(std::move(end), settings);
  return replace_transport == nullptr ? std::move(made) : replace_transport(std::move(made));
}

void replace_transports(ReplaceTransport replace) { replace_transport = replace; }

}  // namespace leat::detail
