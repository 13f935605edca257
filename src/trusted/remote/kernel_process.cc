#include "trusted/remote/kernel_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/system_error.h"
#include "trusted/remote/exchange.h"

namespace leat::trusted::remote {
namespace {

using leat::detail::Deadline;
using leat::detail::deadline_after;
using leat::detail::Fd;

[[noreturn]] void fail_kernel(const std::string& why) { throw Refused(Refusal::kKernel, why); }

// The same open file or socket at a number that the kernel's own end, descriptor 3, will not take.
Fd out_of_the_way(Fd descriptor) {
  Fd moved(fcntl(descriptor.get(), F_DUPFD_CLOEXEC, kKernelDescriptor + 1));
  if (!moved) throw leat::detail::system_error("fcntl", errno);
  return moved;
}

// A frame of that type from the other end of the pair, whose errors are the kernel's failing.
SecretBytes from_kernel(leat::detail::Stream& stream, Type type, Deadline deadline) {
  try {
    return expect_frame(stream, type, deadline);
  } catch (const Error& error) {
    fail_kernel(error.what());
  }
}

}  // namespace

KernelProcess::KernelProcess(std::vector<std::string> command, std::chrono::milliseconds timeout)
    : command_(std::move(command)), timeout_(timeout) {
  if (command_.empty())
    throw Error(ErrorCode::kInvalidArgument, "no program of an attestation kernel is given");
}

Digest KernelProcess::start(const Digest& expected) {
  if (stream_) fail_kernel("it has been started before");
  Fd opened(open(command_[0].c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened) fail_kernel(command_[0] + ": " + std::generic_category().message(errno));
  const Fd program = out_of_the_way(std::move(opened));
  const std::string path = "/proc/self/fd/" + std::to_string(program.get());
  const Digest measured = sha384_of_file(path);
  if (!same(measured, expected))
    throw Refused(Refusal::kImage, command_[0] + " is not the vendor's kernel");

  int pair[2];
  leat::detail::check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), "socketpair");
  Fd own(pair[0]);
  const Fd theirs = out_of_the_way(Fd(pair[1]));

  std::vector<char*> arguments;
  for (const std::string& word : command_) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), kKernelDescriptor);
  const int failure =
      posix_spawn(&pid_, path.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    pid_ = 0;
    fail_kernel(command_[0] + ": " + std::generic_category().message(failure));
  }
  stream_ = leat::detail::plain_stream(std::move(own));
  return measured;
}

void KernelProcess::provision(const Secrets& secrets) {
  if (!stream_) fail_kernel("it does not run");
  const Deadline deadline = deadline_after(timeout_);
  write_frame(*stream_, Type::kSecrets, encode(secrets), deadline);
  if (parse_ready(from_kernel(*stream_, Type::kReady, deadline)).epoch != secrets.epoch)
    fail_kernel("it is ready for another epoch");
}

void KernelProcess::enable(const Enable& enable) {
  if (!stream_) fail_kernel("it does not run");
  const Deadline deadline = deadline_after(timeout_);
  write_frame(*stream_, Type::kEnable, encode(enable), deadline);
  if (parse_enabled(from_kernel(*stream_, Type::kEnabled, deadline)).epoch != enable.epoch)
    fail_kernel("it has enabled another epoch");
}

KernelEnd::KernelEnd(Fd socket) {
  struct stat status {};
  if (fstat(socket.get(), &status) != 0 || !S_ISSOCK(status.st_mode)) {
    throw Error(ErrorCode::kInvalidArgument,
                "descriptor " + std::to_string(socket.get()) + " is not a controller's socket",
                "The controller starts the kernel: leat-provision device --help.");
  }
  stream_ = leat::detail::plain_stream(std::move(socket));
}

void KernelEnd::enter(State state) {
  if (state_ != state) {
    state_ = State::kOver;
    throw Refused(Refusal::kOrder, "a kernel takes one set of keys in its life");
  }
  state_ = State::kOver;
}

Secrets KernelEnd::receive_secrets(Deadline deadline) {
  enter(State::kNew);
  Secrets secrets = parse_secrets(expect_frame(*stream_, Type::kSecrets, deadline));
  epoch_ = secrets.epoch;
  state_ = State::kProvisioned;
  return secrets;
}

Enable KernelEnd::wait_enable(Deadline deadline) {
  enter(State::kProvisioned);
  write_frame(*stream_, Type::kReady, encode(Ready{epoch_}), deadline);
  Enable enable = parse_enable(expect_frame(*stream_, Type::kEnable, deadline));
  if (enable.epoch != epoch_) throw Refused(Refusal::kMembers, "it is for another epoch");
  state_ = State::kEnabling;
  return enable;
}

void KernelEnd::enabled() {
  enter(State::kEnabling);
  write_frame(*stream_, Type::kEnabled, encode(Enabled{epoch_}),
              deadline_after(std::chrono::seconds(1)));
}

}  // namespace leat::trusted::remote
