// A leat-attestd under test, and raw clients of it.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attest/kernel_ring.h"
#include "base/mapped_memory.h"
#include "base/system_error.h"
#include "base/unix_socket.h"
#include "leat/channel.h"
#include "leat/listener.h"
#include "leat/options.h"
#include "net/stream.h"
#include "support/channel_side.h"
#include "support/program.h"
#include "support/scale.h"
#include "support/scratch.h"

namespace leat::attestd {

using leat::detail::Fd;

// With the key file of channel_key_file(), unless told otherwise. Killed at the end.
class Daemon {
 public:
  explicit Daemon(std::vector<std::string> more = {}, const std::string& user = "root",
                  const std::string& key_file = {})
      : key_file_(key_file.empty() ? folder_.write("key", std::string(64, 'a')) : key_file),
        arguments_(std::move(more)) {
    arguments_.insert(arguments_.end(), {"--socket", path(), "--key-file", key_file_});
    if (geteuid() == 0) arguments_.insert(arguments_.end(), {"--user", user});
    start();
  }

  // Killed, and started again at the same place.
  void kill() {
    program_->kill();
    program_->wait();
  }
  void start() {
    program_ = std::make_unique<leat::detail::Program>("src/attestd/leat-attestd", arguments_);
    serves_ = program_->wait_for("system calls");
  }

  // It does nothing from the return of stop() until go_on().
  void stop() {
    leat::detail::check(::kill(program_->pid(), SIGSTOP), "kill(SIGSTOP)");
    siginfo_t stopped{};
    leat::detail::check(
        waitid(P_PID, static_cast<id_t>(program_->pid()), &stopped, WSTOPPED | WEXITED | WNOWAIT),
        "waitid");
  }
  void go_on() { leat::detail::check(::kill(program_->pid(), SIGCONT), "kill(SIGCONT)"); }

  std::string path() const { return folder_.path() + "/socket"; }
  const std::string& key_file() const { return key_file_; }
  leat::detail::Program& program() { return *program_; }
  // What it said of itself: "restricted", or nothing if it did not come up.
  const std::string& serves() const { return serves_; }

  // As a side would set them that has the same key in process.
  Options in_process_options(const char* transport = "attested+ring") const {
    Options in_process = options(transport);
    in_process.attest_kernel.reset();
    in_process.attest_key_file = key_file();
    return in_process;
  }
  // As both sides of a connection would set them.
  Options options(const char* transport = "attested+ring") const {
    Options options;
    options.device = "shm";
    options.transport = transport;
    options.attest_kernel = path();
    options.timeout = leat::detail::hang_limit();
    return options;
  }

 private:
  const leat::detail::ScratchFolder folder_;
  const std::string key_file_;
  std::vector<std::string> arguments_;
  std::unique_ptr<leat::detail::Program> program_;
  std::string serves_;
};

// Both sides of a connection, side by side.
struct Connected {
  Connected(const Options& first, const Options& second) {
    Listener listener("127.0.0.1:0", first);
    std::thread connects([&] { connecting.emplace(Channel::connect(listener.address(), second)); });
    accepted.emplace(listener.accept());
    connects.join();
  }
  std::optional<Channel> accepted, connecting;
};

// A socket of the daemon's kind after `call`, bind or connect, with the address of `path`.
inline Fd socket_at(const std::string& path, int (*call)(int, const sockaddr*, socklen_t)) {
  Fd socket(leat::detail::check(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), "socket"));
  const auto address = leat::detail::unix_address(path).value();
  leat::detail::check(
      call(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
      path.c_str());
  return socket;
}

// A client that plays by no rules.
struct RawClient {
  explicit RawClient(const std::string& path) : socket(socket_at(path, ::connect)) {
    leat::detail::wait_ready(socket.get(), POLLIN, leat::detail::hang_deadline(), "no welcome");
    std::array<std::byte, trusted::detail::kWelcomeBytes> message{};
    std::vector<Fd> descriptors;
    leat::detail::receive_message(socket.get(), message, trusted::detail::kWelcomeDescriptors,
                                  descriptors);
    welcome = trusted::detail::decode_welcome(message);
    if (!welcome || descriptors.size() != trusted::detail::kWelcomeDescriptors) return;
    memory =
        leat::detail::MappedMemory::of_file(descriptors[0].get(), welcome->shape.bytes(),
                                            leat::detail::MappedMemory::Protection::kReadWrite);
    wake = std::move(descriptors[1]);
  }

  // Until the daemon has cut this client off.
  bool await_end() const {
    leat::detail::wait_ready(socket.get(), POLLIN | POLLRDHUP, leat::detail::hang_deadline(),
                             "the daemon did not cut the client off");
    return leat::detail::socket_peer_closed(socket.get());
  }

  Fd socket;
  std::optional<trusted::detail::Welcome> welcome;  // none: cut off before
  leat::detail::MappedMemory memory;
  Fd wake;
};

}  // namespace leat::attestd
