// Sending and receiving, by every call that does.
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <vector>

#include "steps.h"

namespace posix_fuzz {

enum PutForm {
  kWrite,
  kWritev,
  kPwritev2,
  kSend,
  kSendto,
  kSendmsg,
  kSendmmsg,
  kSendmmsg2,
  kSysWrite,
  kSysWritev,
  kSysSendto,
  kSysSendmsg,
  kDprintf,
};
const Words kPutForms = {{"write", kWrite},          {"writev", kWritev},
                         {"pwritev2", kPwritev2},    {"send", kSend},
                         {"sendto", kSendto},        {"sendmsg", kSendmsg},
                         {"sendmmsg", kSendmmsg},    {"sendmmsg2", kSendmmsg2},
                         {"sys_write", kSysWrite},   {"sys_writev", kSysWritev},
                         {"sys_sendto", kSysSendto}, {"sys_sendmsg", kSysSendmsg},
                         {"dprintf", kDprintf}};
enum GetForm {
  kRead,
  kReadChecked,
  kReadv,
  kPreadv2,
  kRecv,
  kRecvChecked,
  kRecvfrom,
  kRecvmsg,
  kRecvmmsg,
  kSysRead,
  kSysReadv,
  kSysRecvfrom,
  kSysRecvmsg,
};
const Words kGetForms = {{"read", kRead},
                         {"read_chk", kReadChecked},
                         {"readv", kReadv},
                         {"preadv2", kPreadv2},
                         {"recv", kRecv},
                         {"recv_chk", kRecvChecked},
                         {"recvfrom", kRecvfrom},
                         {"recvmsg", kRecvmsg},
                         {"recvmmsg", kRecvmmsg},
                         {"sys_read", kSysRead},
                         {"sys_readv", kSysReadv},
                         {"sys_recvfrom", kSysRecvfrom},
                         {"sys_recvmsg", kSysRecvmsg}};
const Words kSendFlags = {{"DONTWAIT", MSG_DONTWAIT}, {"NOSIGNAL", MSG_NOSIGNAL}, {"OOB", MSG_OOB}};
const Words kReceiveFlags = {{"PEEK", MSG_PEEK},
                             {"DONTWAIT", MSG_DONTWAIT},
                             {"WAITALL", MSG_WAITALL},
                             {"TRUNC", MSG_TRUNC},
                             {"OOB", MSG_OOB}};

namespace {

constexpr std::size_t kMostBytes = 8192;
// Where nothing comes, the step counts as asleep long before.
constexpr int kPumpPatienceMs = 10'000;
// Of a process, but its threads do not do this at the same time unless one of them blocks: then
// each has its own.
thread_local unsigned char buffer[kMostBytes];
// A buffer whose size the compiler does not know, so that it takes the unfortified call.
unsigned char* volatile hidden_buffer = nullptr;

std::size_t count_of(const Call& call, std::size_t index) {
  return std::min(static_cast<std::size_t>(std::max(call.argument(index), 0)), kMostBytes);
}

// Three parts, one of them empty.
struct Parts {
  explicit Parts(std::size_t count)
      : vectors{{buffer, count / 3}, {buffer, 0}, {buffer + count / 3, count - count / 3}} {
    message.msg_iov = vectors;
    message.msg_iovlen = 3;
  }
  iovec vectors[3];
  msghdr message{};
};

long put_bytes(int form, int fd, std::size_t count, int flags) {
  Parts parts(count);
  mmsghdr messages[2] = {};
  switch (form) {
    case kWrite:
      return write(fd, buffer, count);
    case kWritev:
      return writev(fd, parts.vectors, 3);
    case kPwritev2:
      return pwritev2(fd, parts.vectors, 3, -1, 0);
    case kSend:
      return send(fd, buffer, count, flags);
    case kSendto:
      return sendto(fd, buffer, count, flags, nullptr, 0);
    case kSendmsg:
      return sendmsg(fd, &parts.message, flags);
    case kSendmmsg:
    case kSendmmsg2: {
      messages[0].msg_hdr = parts.message;
      messages[1].msg_hdr = parts.message;
      const long sent = sendmmsg(fd, messages, form == kSendmmsg ? 1 : 2, flags);
      return sent <= 0 ? sent : sent * 100'000 + messages[0].msg_len + messages[1].msg_len;
    }
    case kSysWrite:
      return syscall(SYS_write, fd, buffer, count);
    case kSysWritev:
      return syscall(SYS_writev, fd, parts.vectors, 3);
    case kSysSendto:
      return syscall(SYS_sendto, fd, buffer, count, flags, nullptr, 0);
    case kSysSendmsg:
      return syscall(SYS_sendmsg, fd, &parts.message, flags);
    default:
      return dprintf(fd, "%.*s", static_cast<int>(count), "a line of text that a program prints\n");
  }
}

long get_bytes(int form, int fd, std::size_t count, int flags) {
  hidden_buffer = buffer;
  unsigned char* const hidden = hidden_buffer;
  Parts parts(count);
  mmsghdr messages[2] = {};
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  switch (form) {
    case kRead:
      return read(fd, hidden, count);
    case kReadChecked:
      return read(fd, buffer, count);
    case kReadv:
      return readv(fd, parts.vectors, 3);
    case kPreadv2:
      return preadv2(fd, parts.vectors, 3, -1, 0);
    case kRecv:
      return recv(fd, hidden, count, flags);
    case kRecvChecked:
      return recv(fd, buffer, count, flags);
    case kRecvfrom:
      return recvfrom(fd, hidden, count, flags, reinterpret_cast<sockaddr*>(&address), &bytes);
    case kRecvmsg:
      return recvmsg(fd, &parts.message, flags);
    case kRecvmmsg: {
      messages[0].msg_hdr = parts.message;
      const long had = recvmmsg(fd, messages, 1, flags, nullptr);
      return had <= 0 ? had : messages[0].msg_len;
    }
    case kSysRead:
      return syscall(SYS_read, fd, buffer, count);
    case kSysReadv:
      return syscall(SYS_readv, fd, parts.vectors, 3);
    case kSysRecvfrom:
      return syscall(SYS_recvfrom, fd, buffer, count, flags, nullptr, nullptr);
    default:
      return syscall(SYS_recvmsg, fd, &parts.message, flags);
  }
}

void run_put(Call& call) {
  const std::size_t count = count_of(call, 2);
  fill_pattern(buffer, count, call.number());
  call.result(put_bytes(call.argument(1), call.fd(0), count, call.argument(3)));
  arrive(call);
}

void run_get(Call& call) {
  const std::size_t count = count_of(call, 2);
  const long got = call.result(get_bytes(call.argument(1), call.fd(0), count, call.argument(3)));
  // With MSG_TRUNC the bytes are thrown away.
  if ((call.argument(3) & MSG_TRUNC) == 0) call.data(buffer, got);
}

// Waits where the socket does not.
void wait_for(int fd, short events) {
  pollfd polled{fd, events, 0};
  poll(&polled, 1, kPumpPatienceMs);
}

// By calls that may take less than all; the bytes of a stream of its own.
void run_pump(Call& call) {
  const auto bytes = static_cast<std::size_t>(call.argument(3));
  std::vector<unsigned char> stream(bytes);
  fill_pattern(stream.data(), bytes, call.number());
  std::size_t done = 0;
  while (done < bytes) {
    const long sent = send(call.fd(0), stream.data() + done, bytes - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) wait_for(call.fd(0), POLLOUT);
    if (sent < 0 && errno != EAGAIN) break;
    if (sent > 0) done += static_cast<std::size_t>(sent);
  }
  call.result(static_cast<long>(done));
  arrive(call);
}

// Nothing that fits is left out: in small pieces at last.
void run_fill(Call& call) {
  std::uint32_t done = 0;
  long sent = 0;
  for (const std::size_t piece : {std::size_t{8192}, std::size_t{1}}) {
    do {
      for (std::size_t i = 0; i < piece; ++i)
        buffer[i] = static_cast<unsigned char>((done + i) % 251);
      sent = send(call.fd(0), buffer, piece, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent > 0) done += static_cast<std::uint32_t>(sent);
    } while (sent > 0);
  }
  call.stage().filled = done;
  call.say(" = %s %s", done > 16'384 ? "full" : "little", strerrorname_np(errno));
}

void run_empty(Call& call) {
  std::uint32_t done = 0;
  bool good = true;
  long got = 1;
  while (done < call.stage().filled && got > 0) {
    wait_for(call.fd(0), POLLIN);
    got = recv(call.fd(0), buffer, kMostBytes, MSG_DONTWAIT);
    for (long i = 0; i < got; ++i) good = good && buffer[i] == (done + i) % 251;
    if (got > 0) done += static_cast<std::uint32_t>(got);
  }
  const bool all = done == call.stage().filled;
  if (all) call.stage().filled = 0;
  call.say(" = %s %s", all ? "all" : "not all", good ? "good" : "WRONG");
}

void run_sendfile(Call& call) {
  off_t offset = call.argument(2);
  call.result(sendfile(call.fd(0), call.fd(1), &offset, count_of(call, 3)));
  call.say(" offset %ld", static_cast<long>(offset));
}

void run_splice(Call& call) {
  call.result(
      splice(call.fd(0), nullptr, call.fd(1), nullptr, count_of(call, 2), SPLICE_F_NONBLOCK));
}

// By stdio, which closes the descriptor then.
void run_stream(Call& call) {
  const std::size_t count = count_of(call, 1);
  FILE* const file = fdopen(call.fd(0), "r+");
  if (file == nullptr) {
    call.result(-1);
    return;
  }
  fill_pattern(buffer, count, call.number());
  call.say(" wrote %zu", fwrite(buffer, 1, count, file));
  call.say(", fileno %d", fileno(file));
  call.say(", flush %d", fflush(file));
  call.say(", close %d", fclose(file));
}

// A descriptor in a message of a unix socket.
void run_pass(Call& call) {
  char byte = 'd';
  iovec part{&byte, 1};
  const int passed = call.fd(1);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &passed, sizeof(passed));
  call.result(sendmsg(call.fd(0), &message, MSG_DONTWAIT | MSG_NOSIGNAL));
}

void run_take(Call& call) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const long got = call.result(recvmsg(call.fd(0), &message, MSG_DONTWAIT));
  if (got < 0) return;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  int fd = -1;
  if (header != nullptr) {
    std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    call.say(" with %zu, flags %x", header->cmsg_len - CMSG_LEN(0),
             static_cast<unsigned>(message.msg_flags));
  }
  call.keep(1, fd);
  call.say(" descriptor %d", fd);
}

}  // namespace

void arrive(const Call& call) {
  constexpr long kLongest = 1'000'000'000;  // ns
  const auto get = [&call](int level, int name, void* value, socklen_t bytes) {
    return raw_call(SYS_getsockopt, call.fd(0), level, name, address_of(static_cast<char*>(value)),
                    address_of(&bytes)) == 0;
  };
  int protocol = 0;
  if (!call.stage().patient || !get(SOL_SOCKET, SO_PROTOCOL, &protocol, sizeof(protocol)) ||
      protocol != IPPROTO_TCP)
    return;
  timespec begin{};
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do {
    tcp_info info{};
    int sent = 0;
    if (!get(IPPROTO_TCP, TCP_INFO, &info, sizeof(info)) || info.tcpi_state == TCP_CLOSE ||
        raw_call(SYS_ioctl, call.fd(0), SIOCOUTQ, address_of(&sent)) != 0 || sent <= 0)
      return;
    raw_call(SYS_sched_yield);
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while ((now.tv_sec - begin.tv_sec) * 1'000'000'000 + now.tv_nsec - begin.tv_nsec < kLongest);
}

void receive_pumped(Call& call) {
  const auto bytes = static_cast<std::size_t>(call.argument(3));
  std::vector<unsigned char> stream(bytes + 1);
  std::size_t done = 0;
  long got = 1;
  while (done < bytes && got > 0) {
    got = recv(call.fd(2), stream.data() + done, bytes - done, 0);
    if (got < 0 && errno == EAGAIN) {
      wait_for(call.fd(2), POLLIN);
      got = 1;
    } else if (got > 0) {
      done += static_cast<std::size_t>(got);
    }
  }
  call.say(" received %zu", done);
  call.data(stream.data(), static_cast<long>(done));
}

std::vector<Operation> byte_operations() {
  return {
      {"put", {slot(), word(kPutForms), number(), flags(kSendFlags)}, run_put},
      {"get", {slot(), word(kGetForms), number(), flags(kReceiveFlags)}, run_get},
      {"pump", {slot(), actor(), slot(), number()}, run_pump},
      {"fill", {slot()}, run_fill},
      {"empty", {slot()}, run_empty},
      {"sendfile", {slot(), slot(), number(), number()}, run_sendfile},
      {"splice", {slot(), slot(), number()}, run_splice},
      {"stream", {slot(), number()}, run_stream},
      {"pass", {slot(), slot()}, run_pass},
      {"take", {slot(), slot()}, run_take},
  };
}

}  // namespace posix_fuzz
