// Cases of what a program sees of stream sockets: plain BSD calls of two processes, each of which
// says what every call gave. The same transcript must come out whether the kernel's TCP carries the
// bytes or leat does, so a case says only what does not depend on time.
#pragma once

#include <netinet/in.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace posix_cases {

using Bytes = std::vector<unsigned char>;

enum class Role { kServer, kClient };

// One of the two processes of a case. Its transcript, and two pipes on which the processes wait for
// each other, are the only things between them that are not under test. Used by one thread at a
// time, but for say().
class Side {
 public:
  explicit Side(Role role) : role_(role) {}

  // Appends a line to the transcript, at once: the process may be killed next.
  void say(const std::string& line) const;
  // "call = result", with the name of errno where the result is -1. Returns the result; keeps
  // errno.
  long say_result(const char* call, long result) const;
  // "name: bytes, digest".
  void say_data(const std::string& name, const void* data, std::size_t bytes) const;
  void say_data(const std::string& name, const Bytes& data) const;

  // Lets the other side's next hear() return `value`.
  void tell(int value = 0) const;
  int hear() const;

  // Server: a listening socket on host(), whose port the client hears of. Not in the transcript
  // unless it fails.
  int listen_here(int backlog = 16) const;
  // Client: what listen_here told, connected.
  int connect_there() const;
  // Both: one connection, of which both know; the listener is closed.
  int connected() const;

 private:
  Role role_;
};

struct Case {
  const char* name;
  void (*server)(Side&);
  void (*client)(Side&);
};

using Cases = std::vector<Case>;

Cases transfer_cases();
Cases call_cases();
Cases nonblocking_cases();
Cases option_cases();
Cases timeout_cases();
Cases shutdown_cases();
Cases fault_cases();
Cases end_cases();
Cases ending_cases();
Cases pointer_cases();
Cases descriptor_cases();
Cases exhaustion_cases();
Cases process_cases();
Cases exec_cases();
Cases command_cases();
Cases poll_cases();
Cases epoll_cases();
Cases epoll_mixed_cases();
Cases epoll_order_cases();
Cases epoll_shared_cases();
Cases stdio_cases();
Cases signal_cases();
Cases thread_cases();
Cases connect_cases();
Cases address_cases();
Cases fortified_cases();
Cases raw_cases();
Cases syscall_cases();
Cases io_uring_cases();
Cases listener_cases();
Cases sleeper_cases();
Cases many_cases();
Cases fork_cases();
Cases spawn_cases();
Cases handler_cases();
Cases end_cases();
Cases limit_cases();
Cases jump_cases();
Cases order_cases();

// Says the call as it is written, and what it gave.
#define SAY(call) side.say_result(#call, (errno = 0, static_cast<long>(call)))

// Descriptors that every side has: of the transcript, to tell, to hear. High, so that a case's own
// are low.
constexpr int kTranscript = 700;
constexpr int kTell = 701;
constexpr int kHear = 702;

// Within which what must happen happens, also on a busy or emulated machine.
constexpr int kPatienceMs = 60'000;

// Ends the process with a line in the transcript if `good` is false; for what is not under test.
void require(bool good, const char* what);

// The number, of which the compiler cannot know.
template <typename Number>
Number unknown(Number number) {
  volatile Number hidden = number;
  return hidden;
}

// `bytes` that differ with `seed` and place.
Bytes pattern(std::size_t bytes, unsigned seed = 1);
// All of it by send(); says nothing unless it fails.
void send_all(const Side& side, int fd, const Bytes& data);
void send_text(const Side& side, int fd, const std::string& text);
// Exactly that many by recv(), or fewer if the stream ends.
Bytes recv_all(const Side& side, int fd, std::size_t bytes);
// Until recv() does not give any more, and says what it gave last.
Bytes recv_to_end(const Side& side, int fd);
// Sends without blocking until nothing fits for a while; returns how many bytes that were.
std::size_t fill(const Side& side, int fd);

// Waits until the thread whose number comes to stand in `thread` sleeps, which it does next in the
// call under test.
void wait_asleep(const std::atomic<int>& thread);

// Calls until it gives -1, and returns that: the kernel may take a few bytes more of a sender that
// was full before.
long until_failure(const std::function<long()>& call);

// Waits until one of `events` is there; says so if it does not come.
void wait_for(const Side& side, int fd, short events);
// Waits until FIONREAD says at least that many.
void wait_bytes(const Side& side, int fd, int bytes);
// "POLLIN|POLLOUT", "0".
std::string poll_names(short events);
std::string epoll_names(unsigned events);

void say_poll(const Side& side, int fd);
// SO_ERROR, which reading clears.
void say_socket_error(const Side& side, int fd);

// The IPv4 address at which the processes meet: 127.0.0.1, or what this variable says.
inline constexpr const char* kHostVariable = "POSIX_CASES_HOST";
const char* host();
sockaddr_in meeting_place(int port);
int connect_to(int fd, int port);

void sleep_ms(int milliseconds);
// Whether `call` took that time, but for what timers round.
bool lasted_ms(int milliseconds, const std::function<void()>& call);
void set_blocking(int fd, bool blocking);

}  // namespace posix_cases
