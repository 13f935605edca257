// Which device and transport two sides use: the rules, without sockets or devices. Pure.
#pragma once

#include <string>

#include "base/settings.h"
#include "handshake/device_list.h"
#include "handshake/hello.h"

namespace leat::detail {

// Throws kInvalidArgument if one side's own settings contradict each other: an unknown transport,
// transport ring with device tcp.
void check_choice(const Settings& settings, const DeviceList& devices);

// What a hello asks for: the setting, or "sealed+auto", which is "auto" with messages encrypted
// where they leave the host, if the settings want that and there is a key.
std::string wished_transport(const Settings& settings);
// Whether it is one of these two.
bool leaves_choice(const std::string& transport);

// What both ask for: a transport's name, "auto" or "sealed+auto". Throws kUnavailable that names
// both wishes.
std::string agree_on_transport(const Hello& client, const Hello& listener);

// The transport to use on a device of that kind; empty if `agreed` cannot run there.
std::string transport_on(const DeviceRow& device, const std::string& agreed);

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
              const std::string& agreed_transport);

}  // namespace leat::detail
