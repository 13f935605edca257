// Which device and transport two sides use: the rules, without sockets or devices. Pure.
#pragma once

#include <string>

#include "base/settings.h"
#include "handshake/device_list.h"
#include "handshake/hello.h"

namespace leat::detail {

// Throws kInvalidArgument if one side's own settings contradict each other: an unknown transport,
// transport ring with device tcp, confidential=require where all would go in clear.
void check_choice(const Settings& settings, const DeviceList& devices);

// Whether a side asks that messages which leave the host are encrypted: the settings want it and
// there is a key.
bool wishes_sealing(const Settings& settings);

// What two sides ask for together.
struct Wish {
  std::string transport;  // a name, or "auto"
  bool seals = false;     // with "sealed+" before it, where messages leave the host over RDMA
};
// One side's wish to seal is enough. Throws kUnavailable that names both transports.
Wish agree_on_transport(const Hello& client, const Hello& listener);

// The transport to use on a device of that kind; empty if the one wished for cannot run there.
std::string transport_on(const DeviceRow& device, const Wish& wish);
// Whether a client that wished for `transport` can be answered with that one.
bool may_answer(const DeviceRow& device, const std::string& answer, const std::string& transport);

// Whether messages over a device of that kind can be seen outside this host.
bool leaves_host(const DeviceRow& device);
// For tests on one host: from now on they leave it over every kind of device.
void count_all_as_leaving(bool all);
// Whether messages leave the host in clear. `tls`: the connection's stream is inside it.
bool in_clear(const DeviceRow& device, const std::string& transport, bool tls);
// Why the settings forbid that; empty if they do not, or it is not so.
std::string forbidden_in_clear(const Settings& settings, const DeviceRow& device,
                               const std::string& transport, bool tls);

struct Verdict {
  bool possible = false;
  std::string why_not;
  // A better device that could be used is given up: this counts as a fallback. False if a setting
  // excludes the device, or if it can never serve these two, as shm between hosts.
  bool is_loss = false;
};

// Whether that kind of device may be tried, from what is known of both sides.
Verdict judge(const DeviceRow& device, const Hello& client, const Hello& listener,
              const Wish& agreed);

}  // namespace leat::detail
