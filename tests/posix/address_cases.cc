// Names of sockets: families, what getsockname, getpeername and accept say of them.
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "case.h"

namespace posix_cases {
namespace {

// The address without the port, which differs from run to run; and of that whether it is `port`.
std::string text_of(const sockaddr_storage& address, socklen_t length, int port) {
  char text[INET6_ADDRSTRLEN] = "?";
  int found = 0;
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &four.sin_addr, text, sizeof(text));
    found = ntohs(four.sin_port);
  } else if (address.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof(text));
    found = ntohs(six.sin6_port);
  }
  const std::string which = found == 0 ? "no port" : found == port ? "the port" : "another port";
  return std::string(text) + ", " + which + ", " + std::to_string(length) + " bytes";
}

int port_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  require(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0, "getsockname");
  return ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);
}

int peer_port_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  require(getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0, "getpeername");
  return ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);
}

void say_names(const Side& side, int fd, int own_port, int peer_port) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (SAY(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length)) == 0) {
    side.say(text_of(address, length, own_port));
  }
  length = sizeof(address);
  if (SAY(getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length)) == 0) {
    side.say(text_of(address, length, peer_port));
  }
}

// Listens on `at`, whose family it has; accepts, says all names, and answers.
void serve_at(Side& side, const char* at, bool both_families) {
  sockaddr_storage address{};
  socklen_t length = 0;
  int family = AF_INET;
  if (std::strchr(at, ':') == nullptr) {
    auto& four = reinterpret_cast<sockaddr_in&>(address);
    four.sin_family = AF_INET;
    inet_pton(AF_INET, at, &four.sin_addr);
    length = sizeof(four);
  } else {
    auto& six = reinterpret_cast<sockaddr_in6&>(address);
    six.sin6_family = AF_INET6;
    inet_pton(AF_INET6, at, &six.sin6_addr);
    length = sizeof(six);
    family = AF_INET6;
  }
  const int listener = socket(family, SOCK_STREAM, 0);
  const int only = both_families ? 0 : 1;
  if (family == AF_INET6) SAY(setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only)));
  SAY(bind(listener, reinterpret_cast<sockaddr*>(&address), length));
  SAY(listen(listener, 5));
  const int port = port_of(listener);
  say_names(side, listener, port, 0);
  side.tell(port);
  length = sizeof(address);
  const int fd = accept(listener, reinterpret_cast<sockaddr*>(&address), &length);
  side.say(text_of(address, length, peer_port_of(fd)));
  side.tell(peer_port_of(fd));
  say_names(side, fd, port, peer_port_of(fd));
  send_text(side, fd, "welcome");
  side.say_data("rest", recv_to_end(side, fd));
}

// Connects to `to` with the port that it hears; from `source` if that is given.
void connect_to(Side& side, const std::string& to, const char* source = nullptr) {
  const int port = side.hear();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  require(getaddrinfo(to.c_str(), std::to_string(port).c_str(), &hints, &found) == 0,
          "getaddrinfo");
  const int fd = socket(found->ai_family, SOCK_STREAM, 0);
  say_names(side, fd, 0, 0);
  if (source != nullptr) {
    sockaddr_in from{};
    from.sin_family = AF_INET;
    inet_pton(AF_INET, source, &from.sin_addr);
    SAY(bind(fd, reinterpret_cast<sockaddr*>(&from), sizeof(from)));
  }
  SAY(connect(fd, found->ai_addr, found->ai_addrlen));
  freeaddrinfo(found);
  say_names(side, fd, side.hear(), port);
  side.say_data("received", recv_all(side, fd, 7));
  SAY(close(fd));
}

}  // namespace

Cases address_cases() {
  return {
      {"address.ipv4", [](Side& side) { serve_at(side, host(), false); },
       [](Side& side) { connect_to(side, host()); }},

      {"address.any", [](Side& side) { serve_at(side, "0.0.0.0", false); },
       [](Side& side) { connect_to(side, host()); }},

      {"address.to_any", [](Side& side) { serve_at(side, "0.0.0.0", false); },
       [](Side& side) { connect_to(side, "0.0.0.0"); }},

      {"address.other_loopback", [](Side& side) { serve_at(side, "127.0.0.7", false); },
       [](Side& side) { connect_to(side, "127.0.0.7"); }},

      {"address.bound_source", [](Side& side) { serve_at(side, host(), false); },
       [](Side& side) { connect_to(side, host(), "127.0.0.9"); }},

      {"address.ipv6", [](Side& side) { serve_at(side, "::1", false); },
       [](Side& side) { connect_to(side, "::1"); }},

      {"address.ipv6_any", [](Side& side) { serve_at(side, "::", false); },
       [](Side& side) { connect_to(side, "::1"); }},

      {"address.both_families_ipv4", [](Side& side) { serve_at(side, "::", true); },
       [](Side& side) { connect_to(side, host()); }},

      {"address.both_families_ipv6", [](Side& side) { serve_at(side, "::", true); },
       [](Side& side) { connect_to(side, "::1"); }},

      {"address.mapped", [](Side& side) { serve_at(side, host(), false); },
       [](Side& side) { connect_to(side, "::ffff:" + std::string(host())); }},

      {"address.short_buffers",
       [](Side& side) {
         const int listener = side.listen_here();
         sockaddr_in address{};
         socklen_t length = 2;
         const int fd = accept(listener, reinterpret_cast<sockaddr*>(&address), &length);
         // connect() has returned: this process must not end with an offer of leat-run's untaken.
         side.hear();
         SAY(address.sin_family);
         SAY(address.sin_port);
         SAY(length);
         length = 0;
         SAY(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length));
         SAY(length);
         length = static_cast<socklen_t>(-1);
         SAY(getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length));
         SAY(getsockname(-1, reinterpret_cast<sockaddr*>(&address), &length));
         SAY(getpeername(0, reinterpret_cast<sockaddr*>(&address), &length));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connect_there();
         side.tell();
         side.hear();
         SAY(shutdown(fd, SHUT_RDWR));
         sockaddr_in address{};
         socklen_t length = sizeof(address);
         SAY(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length));
       }},
  };
}

}  // namespace posix_cases
