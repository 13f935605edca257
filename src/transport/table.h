// The one table of transports: names, needs and makers stand here and nowhere else.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/endpoint.h"

namespace leat::detail {

struct TransportRow {
  const char* name;
  bool rdma;                     // needs a queue pair; the others run on the stream alone
  std::size_t receive_requests;  // that its queue pair has room for, where the device allows
  const char* help;
  MakeTransport* make;
};

// Changes the messages of any transport of the table: "attested+" before "ring" is attested+ring.
// It relies on nothing of the inner transport but the contract in transport.h.
struct DecoratorRow {
  const char* prefix;
  const char* help;
  bool needs_tls;  // the keys of its messages come from there
  std::unique_ptr<Transport> (*make)(MakeTransport* inner, Endpoint end, const Settings& settings);
};

// In the order in which "auto" takes the first one that fits the device.
std::span<const TransportRow> transport_rows();
std::span<const DecoratorRow> decorator_rows();

// The row of "ring" or of "attested+ring"; null for an unknown name.
const TransportRow* find_transport(std::string_view name);

// The row of the "attested+" in "attested+ring"; null without one.
const DecoratorRow* find_decorator(std::string_view name);

// Every transport, those with decorators included.
struct TransportDescription {
  std::string name;
  bool rdma;
  std::string help;
};
std::vector<TransportDescription> describe_transports();

// Largest queue depths that `device` allows and `transport` can use. Throws kUnavailable where the
// transport cannot run on the device at all, because that has no writes with immediate data.
QueueDepths queue_depths(const Device& device, std::string_view transport);

// `name`: one that find_transport knows.
std::unique_ptr<Transport> make_transport(std::string_view name, Endpoint end,
                                          const Settings& settings);

// For tests: from now on make_transport gives what `replace` makes of its transport; null: the
// transport itself. Not while another thread makes one.
using ReplaceTransport = std::unique_ptr<Transport> (*)(std::unique_ptr<Transport> transport);
void replace_transports(ReplaceTransport replace);

}  // namespace leat::detail
