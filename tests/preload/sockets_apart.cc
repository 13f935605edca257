// A server and its clients as programs of their own, for two network namespaces.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "preload/sockets_common.h"
#include "preload/sockets_scenarios.h"

namespace sockets {
namespace {

constexpr std::size_t kAsked = std::size_t{3} << 20;

sockaddr_in address_of(const char* host, const char* port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  must(inet_pton(AF_INET, host, &address.sin_addr) - 1, "inet_pton");
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
  return address;
}

int connect_to(const char* host, const char* port) {
  const sockaddr_in address = address_of(host, port);
  const int fd = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
  must(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), "connect");
  return fd;
}

// The memory of this process's carried connection.
struct Range {
  char* begin = nullptr;
  std::size_t bytes = 0;
};
Range find_memory() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("leat-connection") == std::string::npos) continue;
    unsigned long begin = 0;
    unsigned long end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2)
      return {reinterpret_cast<char*>(begin), end - begin};  // NOLINT(performance-no-int-to-ptr)
  }
  return {};
}

}  // namespace

// Gives each client back what it sends, after its end.
void serve(const char* host, const char* port) {
  const sockaddr_in address = address_of(host, port);
  const int listener = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
  const int on = 1;
  must(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), "SO_REUSEADDR");
  must(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), "bind");
  must(listen(listener, 64), "listen");
  std::printf("serving\n");
  std::fflush(stdout);
  for (;;) {
    const int client = must(accept(listener, nullptr, nullptr), "accept");
    std::vector<char> got;
    std::vector<char> part(65536);
    ssize_t count = 0;
    while ((count = recv(client, part.data(), part.size(), 0)) > 0)
      got.insert(got.end(), part.begin(), part.begin() + count);
    if (count == 0 && !got.empty()) send(client, got.data(), got.size(), MSG_NOSIGNAL);
    std::printf("served %zu%s\n", got.size(), count < 0 ? " and an error" : "");
    std::fflush(stdout);
    close(client);
  }
}

void ask(const char* host, const char* port) {
  const int fd = connect_to(host, port);
  const std::vector<char> data = pattern(kAsked);
  send_all(fd, data);
  say("shutdown", shutdown(fd, SHUT_WR));
  std::printf("all of it: %d\n", receive_all(fd, data));
  std::printf("[%s]\n", receive_text(fd).c_str());
}

// Writes nonsense over all that it shares with the server, again and again, and rings the bell.
void spoil(const char* host, const char* port) {
  const int fd = connect_to(host, port);
  must(static_cast<int>(send(fd, "first", 5, 0)), "send");
  const Range memory = find_memory();
  std::printf("%s\n", memory.begin == nullptr ? "nothing is shared" : "spoiling");
  std::uint64_t state = 88172645463325252U;
  for (int round = 0; memory.begin != nullptr && round < 50; ++round) {
    for (std::size_t at = 0; at + sizeof(state) <= memory.bytes; at += sizeof(state)) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      std::memcpy(memory.begin + at, &state, sizeof(state));
      if (at == 4096 && round % 2 == 0) break;  // mostly the positions
    }
    send(fd, "more", 4, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  std::fflush(stdout);
  _exit(0);
}

}  // namespace sockets
