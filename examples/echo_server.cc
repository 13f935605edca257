// Sends back to each client what it sends, one thread for each: `echo_server [ADDRESS]`, then
// `echo_client ADDRESS` (echo_client.c does the same with the C API).
#include <leat/leat.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <string>
#include <thread>

namespace {

void serve(leat::Socket socket) try {
  std::array<std::byte, 64 * 1024> buffer;
  while (const std::size_t bytes = socket.recv(buffer)) {
    socket.send_all(std::span(buffer).first(bytes));
  }
} catch (const leat::Error& error) {
  std::fprintf(stderr, "echo_server: a client: %s\n", error.what());
}

}  // namespace

int main(int argc, char** argv) try {
  leat::Listener listener(argc > 1 ? argv[1] : "127.0.0.1:7777");
  std::printf("listening at %s\n", listener.address().c_str());
  std::fflush(stdout);
  for (;;) {
    leat::Socket socket = leat::Socket::accept(listener);
    std::printf("%s: %s on %s\n", socket.peer_address().c_str(), socket.transport().c_str(),
                socket.device().c_str());
    std::fflush(stdout);
    std::thread(serve, std::move(socket)).detach();
  }
} catch (const leat::Error& error) {
  std::fprintf(stderr, "echo_server: %s\n", error.what());
  return 1;
}
