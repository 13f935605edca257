#include "support/free_port.h"

#include <unistd.h>

#include <stdexcept>
#include <string>

#include "leat/error.h"
#include "leat/listener.h"

namespace leat::detail {

int free_port() {
  constexpr int kFirst = 10'000;
  constexpr int kCount = 10'000;  // above: free_addresses() of meshes
  // Tests that run at the same time begin far from each other.
  static int next = static_cast<int>(getpid() * 7919L % kCount);
  for (int i = 0; i < kCount; ++i) {
    const int port = kFirst + next;
    next = (next + 1) % kCount;
    try {
      const Listener taken(":" + std::to_string(port));
      return port;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kAddress) throw;
    }
  }
  throw std::runtime_error("no port is free");
}

}  // namespace leat::detail
