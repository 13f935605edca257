// Making connections, and asking and setting what they are.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "steps.h"

namespace posix_fuzz {

const Words kFamilies = {{"v4", AF_INET}, {"v6", AF_INET6}};
const Words kSocketFlags = {{"NONBLOCK", SOCK_NONBLOCK}, {"CLOEXEC", SOCK_CLOEXEC}};
enum AcceptWay { kAccept, kAccept4, kAcceptNoAddress, kAcceptBySyscall, kAccept4BySyscall };
const Words kAcceptWays = {{"accept", kAccept},
                           {"accept4", kAccept4},
                           {"accept_null", kAcceptNoAddress},
                           {"sys_accept", kAcceptBySyscall},
                           {"sys_accept4", kAccept4BySyscall}};
enum How { kByLibrary, kBySyscall, kByInstruction };
const Words kHows = {{"libc", kByLibrary}, {"syscall", kBySyscall}, {"raw", kByInstruction}};

// Level and name in one number.
constexpr int option(int level, int name) { return level * 1000 + name; }
const Words kOptions = {
    {"ERROR", option(SOL_SOCKET, SO_ERROR)},
    {"TYPE", option(SOL_SOCKET, SO_TYPE)},
    {"DOMAIN", option(SOL_SOCKET, SO_DOMAIN)},
    {"PROTOCOL", option(SOL_SOCKET, SO_PROTOCOL)},
    {"ACCEPTCONN", option(SOL_SOCKET, SO_ACCEPTCONN)},
    {"REUSEADDR", option(SOL_SOCKET, SO_REUSEADDR)},
    {"REUSEPORT", option(SOL_SOCKET, SO_REUSEPORT)},
    {"KEEPALIVE", option(SOL_SOCKET, SO_KEEPALIVE)},
    {"BROADCAST", option(SOL_SOCKET, SO_BROADCAST)},
    {"OOBINLINE", option(SOL_SOCKET, SO_OOBINLINE)},
    {"RCVLOWAT", option(SOL_SOCKET, SO_RCVLOWAT)},
    {"NODELAY", option(IPPROTO_TCP, TCP_NODELAY)},
    {"CORK", option(IPPROTO_TCP, TCP_CORK)},
    {"KEEPIDLE", option(IPPROTO_TCP, TCP_KEEPIDLE)},
    {"KEEPINTVL", option(IPPROTO_TCP, TCP_KEEPINTVL)},
    {"KEEPCNT", option(IPPROTO_TCP, TCP_KEEPCNT)},
    {"USER_TIMEOUT", option(IPPROTO_TCP, TCP_USER_TIMEOUT)},
    {"SYNCNT", option(IPPROTO_TCP, TCP_SYNCNT)},
    {"LINGER2", option(IPPROTO_TCP, TCP_LINGER2)},
    {"TTL", option(IPPROTO_IP, IP_TTL)},
    {"TOS", option(IPPROTO_IP, IP_TOS)},
    {"V6ONLY", option(IPPROTO_IPV6, IPV6_V6ONLY)},
};

namespace {

sockaddr_storage local_address(const Stage& stage, int family, socklen_t& bytes) {
  sockaddr_storage address{};
  address.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_addr = in6addr_loopback;
    bytes = sizeof(sockaddr_in6);
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(stage.host);
    bytes = sizeof(sockaddr_in);
  }
  return address;
}

unsigned port_of(const sockaddr_storage& address) {
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);  // at the same place in v6
}

// An address by what a script knows: ports differ from run to run.
void say_address(const Call& call, const sockaddr_storage& address, socklen_t bytes) {
  const unsigned port = port_of(address);
  call.say(" family %d, %u bytes, ", int{address.ss_family}, bytes);
  if (port == 0) return call.say("port 0");
  for (int i = 0; i < kPlaces; ++i) {
    const Place& place = call.stage().places[i];
    if (place.bytes != 0 && port_of(place.address) == port) return call.say("place %d", i);
  }
  call.say("a port");
}

// socket(): as most programs have it, without Nagle's algorithm: what it holds back for a while
// cannot be waited for.
void run_socket(Call& call) {
  const int family = call.argument(1);
  const int type = SOCK_STREAM | call.argument(2);
  const int how = call.argument(3);
  const long fd = how == kBySyscall ? syscall(SYS_socket, family, type, 0)
                                    : (how == kByInstruction ? raw_call(SYS_socket, family, type)
                                                             : socket(family, type, 0));
  call.keep(0, static_cast<int>(call.result(fd)));
  const int on = 1;
  if (fd >= 0) setsockopt(static_cast<int>(fd), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// bind() to a port that the kernel chooses, which is the place's then.
void run_bind(Call& call) {
  Place& place = call.stage().places[call.argument(1)];
  socklen_t bytes = 0;
  const sockaddr_storage address = local_address(call.stage(), call.argument(2), bytes);
  const int fd = call.fd(0);
  const long bound = bind(fd, reinterpret_cast<const sockaddr*>(&address), bytes);
  call.result(bound);
  if (bound != 0) return;
  socklen_t room = sizeof(place.address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&place.address), &room);
  place.bytes = room;
}

void run_listen(Call& call) { call.result(listen(call.fd(0), call.argument(1))); }

void run_connect(Call& call) {
  Place place = call.stage().places[call.argument(1)];
  if (place.bytes == 0) {
    // Nobody listens at port 1.
    place.address = local_address(call.stage(), AF_INET, place.bytes);
    reinterpret_cast<sockaddr_in&>(place.address).sin_port = htons(1);
  }
  const auto* address = reinterpret_cast<const sockaddr*>(&place.address);
  const int fd = call.fd(0);
  call.result(call.argument(2) == kBySyscall ? syscall(SYS_connect, fd, address, place.bytes)
                                             : connect(fd, address, place.bytes));
}

void run_dissolve(Call& call) {
  sockaddr_storage address{};
  address.ss_family = AF_UNSPEC;
  call.result(connect(call.fd(0), reinterpret_cast<const sockaddr*>(&address), sizeof(address)));
}

void run_accept(Call& call) {
  const int fd = call.fd(0);
  const int flags = call.argument(2);
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  auto* where = reinterpret_cast<sockaddr*>(&address);
  long accepted = -1;
  switch (call.argument(3)) {
    case kAccept:
      accepted = accept(fd, where, &bytes);
      break;
    case kAccept4:
      accepted = accept4(fd, where, &bytes, flags);
      break;
    case kAcceptNoAddress:
      bytes = 0;
      accepted = accept4(fd, nullptr, nullptr, flags);
      break;
    case kAcceptBySyscall:
      accepted = syscall(SYS_accept, fd, where, &bytes);
      break;
    default:
      accepted = syscall(SYS_accept4, fd, where, &bytes, flags);
  }
  call.keep(1, static_cast<int>(call.result(accepted)));
  if (accepted >= 0 && bytes != 0) say_address(call, address, bytes);
}

void run_shutdown(Call& call) {
  const int fd = call.fd(0);
  const int how = call.argument(1);
  call.result(call.argument(2) == kBySyscall ? syscall(SYS_shutdown, fd, how) : shutdown(fd, how));
  arrive(call);
}

void say_name(const Call& call, int (*ask)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  const long result = ask(call.fd(0), reinterpret_cast<sockaddr*>(&address), &bytes);
  call.result(result);
  if (result == 0) say_address(call, address, bytes);
}

void run_getsockname(Call& call) {
  say_name(call, [](int fd, sockaddr* address, socklen_t* bytes) {
    return getsockname(fd, address, bytes);
  });
}

void run_getpeername(Call& call) {
  say_name(call, [](int fd, sockaddr* address, socklen_t* bytes) {
    return getpeername(fd, address, bytes);
  });
}

void run_getsockopt(Call& call) {
  int value = 0;
  socklen_t bytes = sizeof(value);
  const int which = call.argument(1);
  const long result = getsockopt(call.fd(0), which / 1000, which % 1000, &value, &bytes);
  call.result(result);
  if (result == 0) call.say(" %d", value);
}

void run_setsockopt(Call& call) {
  const int value = call.argument(2);
  const int which = call.argument(1);
  call.result(setsockopt(call.fd(0), which / 1000, which % 1000, &value, sizeof(value)));
}

void run_linger(Call& call) {
  const linger value{call.argument(1), 0};
  call.result(setsockopt(call.fd(0), SOL_SOCKET, SO_LINGER, &value, sizeof(value)));
}

// A timeout of receiving, sending or both, in milliseconds.
void run_timeout(Call& call) {
  const timeval value{0, call.argument(1) * 1000L};
  call.result(setsockopt(call.fd(0), SOL_SOCKET, SO_RCVTIMEO, &value, sizeof(value)));
}

// Rule state_acknowledged: the state without what depends on whether the peer has acknowledged the
// end yet, which it may do later.
int settled_state(int state) {
  if (state == TCP_FIN_WAIT1) return TCP_FIN_WAIT2;
  if (state == TCP_LAST_ACK || state == TCP_CLOSING || state == TCP_TIME_WAIT) return TCP_CLOSE;
  return state;
}

void run_state(Call& call) {
  tcp_info information{};
  socklen_t bytes = sizeof(information);
  const long result = getsockopt(call.fd(0), IPPROTO_TCP, TCP_INFO, &information, &bytes);
  call.result(result);
  if (result == 0) call.say(" state %d", settled_state(information.tcpi_state));
}

}  // namespace

std::vector<Operation> socket_operations() {
  return {
      {"socket", {slot(), word(kFamilies), flags(kSocketFlags), word(kHows)}, run_socket},
      {"bind", {slot(), number(), word(kFamilies)}, run_bind},
      {"listen", {slot(), number()}, run_listen},
      {"connect", {slot(), number(), word(kHows)}, run_connect},
      {"dissolve", {slot()}, run_dissolve},
      {"accept", {slot(), slot(), flags(kSocketFlags), word(kAcceptWays)}, run_accept},
      {"shutdown", {slot(), number(), word(kHows)}, run_shutdown},
      {"getsockname", {slot()}, run_getsockname},
      {"getpeername", {slot()}, run_getpeername},
      {"getsockopt", {slot(), word(kOptions)}, run_getsockopt},
      {"setsockopt", {slot(), word(kOptions), number()}, run_setsockopt},
      {"linger", {slot(), number()}, run_linger},
      {"timeout", {slot(), number()}, run_timeout},
      {"state", {slot()}, run_state},
  };
}

}  // namespace posix_fuzz
