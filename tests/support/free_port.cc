#include "support/free_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "base/fd.h"
#include "leat/error.h"
#include "leat/listener.h"

namespace leat::detail {
namespace {

// Above are the ports of free_addresses() of meshes.
constexpr int kFirst = 10'000;
constexpr int kBlock = 100;
constexpr int kBlocks = 100;

// A block of ports that is this process's alone, as long as it lives: a test that runs at the same
// time would otherwise listen at a port that a client of this one knocks at in vain as yet.
class Block {
 public:
  Block() {
    for (int i = 0; i < kBlocks; ++i) {
      first_ = kFirst + (static_cast<int>(getpid()) + i) % kBlocks * kBlock;
      if (claim()) return;
    }
    throw std::runtime_error("no ports are left for tests");
  }

  int next() { return first_ + turn_++ % kBlock; }

 private:
  // By UDP, which nothing else here uses.
  bool claim() {
    socket_ = Fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(first_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }

  int first_ = 0;
  int turn_ = 0;
  Fd socket_;
};

// A child of fork() claims one of its own.
Block& own_block() {
  static pid_t owner = 0;
  static std::unique_ptr<Block> block;
  if (owner != getpid()) {
    block = std::make_unique<Block>();
    owner = getpid();
  }
  return *block;
}

}  // namespace

int free_port() {
  Block& block = own_block();
  for (int i = 0; i < kBlock; ++i) {
    const int port = block.next();
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
