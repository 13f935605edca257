// leat-bench transfer between two hosts: the receiving processes run where another leat-bench
// listens.
#pragma once

#include <cstdint>
#include <string>

#include "leat/leat.h"
#include "transfer/run.h"

namespace leat::bench {

// The leat-bench that listens at another host, as the sending side sees it. For one thread; must
// outlive its links. Throws leat::Error when it cannot be reached or has ended.
class RemoteHost {
 public:
  // `address`: "host:port". Tries again for a while if nobody listens yet.
  explicit RemoteHost(const std::string& address);

  // Where its receiving ends can be reached: a numeric address.
  std::string host() const;
  // Whether that is this host.
  bool here() const;
  // As StartReceiver, there.
  std::unique_ptr<ReceiverLink> start(const TransferCase& transfer, const RunOptions& options);

 private:
  class Link;

  Channel channel_;
  std::uint64_t run_ = 0;
};

// What the listening side has a say in.
struct ServeOptions {
  std::string device;     // "": of the kind that the other side names
  std::vector<int> cpus;  // as RunOptions::cpus
};

// Listens at "host:port", serves one leat-bench and returns when that has ended. Forks, so call it
// while there are no threads.
void serve_transfers(const std::string& address, const ServeOptions& options);

}  // namespace leat::bench
