// Which device and transport two sides use: the rules, without sockets or devices. Pure.
#pragma once

#include <array>
#include <string>

#include "base/settings.h"
#include "conn/device_list.h"
#include "conn/hello.h"

namespace leat::detail {

struct TransportRule {
  const char* name;              // at most 23 characters
  bool rdma;                     // needs a queue pair; the others need device tcp
  std::size_t receive_requests;  // that its queue pair has room for, where the device allows
  const char* help;
};

// Every transport that a peer may ask for; "auto" takes the first one that fits the device.
inline constexpr std::array<TransportRule, 10> kTransports = {{
    {"ring", true, 1024,
     "write-with-immediate into a ring per protocol context, received in place"},
    {"planned", true, 1024,
     "ring, and beside it message arrays whose places are planned; by name only"},
    {"batched", true, 64,
     "slots filled and given back many at a time, by bitmaps that each side reads; by name only"},
    {"confirm-each", true, 4096,
     "the same slots, each message announced and each slot given back alone; by name only"},
    {"chunked", true, 1024,
     "large messages in chunks that a far, lossy path can hold, received in place; by name only"},
    {"attested+ring", true, 1024,
     "ring, each message attested by its sender and verified before it is handed out; by name "
     "only"},
    {"attested+planned", true, 1024, "the same over planned; message arrays are not attested"},
    {"attested+batched", true, 64, "the same over batched"},
    {"attested+chunked", true, 1024, "the same over chunked"},
    {"tcp", false, 0,
     "framed messages on the TCP connection, for machines without RDMA between them"},
}};

// Throws kInvalidArgument if one side's own settings contradict each other: an unknown transport,
// transport ring with device tcp.
void check_choice(const Settings& settings, const DeviceList& devices);

// What both ask for: a transport's name or "auto". Throws kUnavailable that names both wishes.
std::string agree_on_transport(const Hello& client, const Hello& listener);

// Receive requests that a queue pair for that transport should have room for.
std::size_t receive_requests_of(const std::string& transport);

// The transport to use on a device of that kind; empty if `agreed` cannot run there.
std::string transport_on(DeviceKind kind, const std::string& agreed);

struct Verdict {
  bool possible = false;
  std::string why_not;
  // Something better is given up that could be had: it counts as a fallback. Not so if a setting
  // excludes it or if it cannot be, as shm between hosts.
  bool is_loss = false;
};

// Whether that kind of device may be tried, from what is known of both sides.
Verdict judge(DeviceKind kind, const Hello& client, const Hello& listener,
              const std::string& agreed_transport);

}  // namespace leat::detail
