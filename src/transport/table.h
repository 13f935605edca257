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

// In the order in which "auto" takes the first one that fits the device.
std::span<const TransportRow> transport_rows();

// The row of "ring", which is that of "attested+ring", too; null for an unknown name.
const TransportRow* find_transport(std::string_view name);

// Decorators change the messages of any transport: "attested+" before "ring" is attested+ring.
// They rely on nothing of the transport underneath but the contract in transport.h, so that they go
// over each other: "attested+sealed+ring". Whether there is one, and whether one encrypts:
bool is_decorated(std::string_view name);
bool is_sealed(std::string_view name);
// "sealed+ring" for "ring" and for itself, "attested+sealed+ring" for "attested+ring". `name`: one
// that find_transport knows.
std::string sealed_form(std::string_view name);

// What may stand before a transport's name: each decorator, and those that go together.
struct Decoration {
  std::string prefix;
  std::string help;
};
std::vector<Decoration> decorations();

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
