// What a device's room gives to the table of devices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "verbs/device.h"
#include "verbs/host_identity.h"

namespace leat::detail {

// The kind that stands for no device: messages go over the TCP connection.
inline constexpr const char* kNoDevice = "tcp";

// The two ends of a TCP connection, numeric addresses; either may be empty if it is not known.
struct Route {
  std::string local_host;
  std::string peer_host;
};

// The device of a kind that a route uses: "ib:rxe0" and "ib:rxe0:1"; else empty, and why not.
struct RoutedDevice {
  std::string name;
  std::string name_with_port;
  std::string why_not;
};

// Why two hosts cannot use a kind of device between them; an empty text if nothing forbids it.
struct Obstacle {
  std::string text;
  bool is_loss = false;  // they could if they were set up otherwise
};

// A kind of device. A null function: nothing to do, or nothing against it.
struct DeviceRow {
  const char* kind;      // "shm", "ib"; at most 15 characters
  const char* spelling;  // how a user names devices of that kind; for errors
  bool named = false;    // its devices have names: "ib:NAME", "ib:NAME:PORT"
  // As Limits::shares_memory of each of its devices, known before one is opened: senders write
  // straight into the peer's memory, so transports need none of their own beside it.
  bool shares_memory = false;
  // `name`: the kind, or one of its devices. Throws kUnavailable that says why not. Null: no
  // device, messages go over the TCP connection.
  std::unique_ptr<Device> (*open)(const std::string& name, const std::string& peer_host) = nullptr;
  // Every one of this machine, usable or not, each tried as far as making a queue pair; and one by
  // its name. Never throw for an unusable one.
  std::vector<DeviceInfo> (*probe_all)() = nullptr;
  DeviceInfo (*probe)(const std::string& name) = nullptr;
  std::vector<std::string> (*names)() = nullptr;  // of a kind that is named, usable or not
  RoutedDevice (*find)(const Route& route) = nullptr;
  Obstacle (*obstacle)(const HostIdentity& client, const HostIdentity& listener) = nullptr;
  // Whether it probably serves this route, so that the next kinds need not be looked for yet.
  bool (*is_likely)(const Route& route) = nullptr;

  bool rdma() const { return open != nullptr; }
};

}  // namespace leat::detail
