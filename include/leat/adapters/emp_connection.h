// The connection below the I/O channels of emp.h, each of which has one of its contexts.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <utility>

#include "leat/adapters/endpoint.h"
#include "leat/adapters/shared_channel.h"
#include "leat/channel.h"
#include "leat/error.h"
#include "leat/listener.h"
#include "leat/options.h"

namespace leat::adapters {

// The connection of two parties. Threads: any. Errors: leat::Error.
class EmpConnection {
 public:
  // How long a client waits for its server, unless the options say otherwise.
  static constexpr std::chrono::seconds kConnectLimit{60};

  // Connects to `address`; with a null address waits for one client at `port`, on all addresses.
  EmpConnection(const char* address, int port, const Options& options)
      : shared_(address == nullptr
                    ? Listener(endpoint("", port), options).accept()
                    : Channel::connect(endpoint(address, port), patient(options, kConnectLimit))),
        is_server_(address == nullptr) {}
  // Takes over a connected channel. One side is the server.
  EmpConnection(Channel channel, bool is_server)
      : shared_(std::move(channel)), is_server_(is_server) {}

  // Throws kInvalidArgument if the context does not exist or another stream uses it.
  unsigned occupy(unsigned context) {
    if (context >= kContexts)
      throw Error(ErrorCode::kInvalidArgument,
                  "there is no protocol context " + std::to_string(context));
    if ((occupied_.fetch_or(1U << context) & 1U << context) != 0)
      throw Error(ErrorCode::kInvalidArgument,
                  "protocol context " + std::to_string(context) + " is in use");
    return context;
  }
  void vacate(unsigned context) { occupied_.fetch_and(~(1U << context)); }
  // The lowest context that is free, or kContexts.
  unsigned vacant() const {
    unsigned context = 0;
    while (context < kContexts && (occupied_.load() & 1U << context) != 0) ++context;
    return context;
  }

  SharedChannel& shared() { return shared_; }
  bool is_server() const { return is_server_; }

 private:
  SharedChannel shared_;
  const bool is_server_;
  std::atomic<unsigned> occupied_{0};
};

}  // namespace leat::adapters
