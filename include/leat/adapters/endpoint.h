// What the adapters share: addresses as host and port, and clients that wait for their server.
#pragma once

#include <chrono>
#include <string>

#include "leat/error.h"
#include "leat/options.h"

namespace leat::adapters {

// "host:port" as leat reads it. An empty host stands for all addresses, for listening.
inline std::string endpoint(const std::string& host, int port) {
  if (port < 0 || port > 65535)
    throw Error(ErrorCode::kInvalidArgument, "there is no port " + std::to_string(port),
                "Ports are 0 to 65535.");
  const bool ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  return (ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

// The programs of these frameworks start in any order. So, unless `options` says otherwise, a
// client tries again while no server listens, for at most `limit`; negative: without limit.
inline Options patient(Options options, std::chrono::milliseconds limit) {
  if (!options.connect_retry) options.connect_retry = true;
  if (!options.connect_timeout) options.connect_timeout = limit;
  return options;
}

}  // namespace leat::adapters
