// An echo server for many clients in one thread, in the loop of Boost.Asio, which serves signals,
// timers and other sockets beside them:
//   server_asio [ADDRESS]     prints its address, and serves until SIGINT or SIGTERM
//   ping_pong ADDRESS         is a client
// echo_clients.h has what it does for them. Other loops take the poller's descriptor in the same
// way.
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>

#include "echo_clients.h"

namespace {

namespace asio = boost::asio;

class Server {
 public:
  Server(asio::io_context& loop, const char* address)
      : clients_(address), readable_(loop, dup(clients_.fd())) {  // Asio closes its own
    wait();
  }

 private:
  // Asked again after each call, not in between: a call that finds nothing makes it unreadable.
  void wait() {
    readable_.async_wait(readable_.wait_read, [this](const boost::system::error_code& error) {
      if (error) return;
      clients_.serve(std::chrono::nanoseconds(0));
      wait();
    });
  }

  EchoClients clients_;
  asio::posix::stream_descriptor readable_;
};

}  // namespace

int main(int argc, char** argv) try {
  asio::io_context loop;
  asio::signal_set signals(loop, SIGINT, SIGTERM);
  signals.async_wait([&](const boost::system::error_code&, int) { loop.stop(); });
  Server server(loop, argc > 1 ? argv[1] : "127.0.0.1:0");
  loop.run();
} catch (const std::exception& error) {
  std::fprintf(stderr, "server_asio: %s\n", error.what());
  return 1;
}
