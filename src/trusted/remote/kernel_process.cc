#include "trusted/remote/kernel_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/memfd.h"
#include "base/system_error.h"
#include "trusted/remote/exchange.h"

namespace leat::trusted::remote {
namespace {

using leat::detail::Deadline;
using leat::detail::deadline_after;
using leat::detail::Fd;

constexpr std::size_t kMaxProgramBytes = std::size_t{256} << 20;

[[noreturn]] void fail_kernel(const std::string& why) { throw Refused(Refusal::kKernel, why); }

// The same open file or socket at a number that the kernel's own end, descriptor 3, will not take.
Fd out_of_the_way(Fd descriptor) {
  Fd moved(fcntl(descriptor.get(), F_DUPFD_CLOEXEC, kKernelDescriptor + 1));
  if (!moved) throw leat::detail::system_error("fcntl", errno);
  return moved;
}

std::string path_of(const Fd& descriptor) {
  return "/proc/self/fd/" + std::to_string(descriptor.get());
}

[[noreturn]] void fail_program(const std::string& path, const std::string& why) {
  fail_kernel(path + ": " + why);
}

[[noreturn]] void fail_program(const std::string& path, const char* call, int failure) {
  fail_program(path, std::string(call) + ": " + std::generic_category().message(failure));
}

void copy_program(const std::string& path, const Fd& from, const Fd& to) {
  std::size_t copied = 0;
  while (const ssize_t more = sendfile(to.get(), from.get(), nullptr, kMaxProgramBytes)) {
    if (more < 0) fail_program(path, "copying it", errno);
    copied += static_cast<std::size_t>(more);
    if (copied > kMaxProgramBytes) fail_program(path, "is longer than 256 MiB");
  }
}

bool is_script(const Fd& program) {
  std::array<char, 2> start{};
  return pread(program.get(), start.data(), start.size(), 0) == 2 && start[0] == '#' &&
         start[1] == '!';
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

Fd sealed_copy_of(const std::string& path) {
  // Not to wait at a pipe.
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0) fail_program(path, "open", errno);
  if (!S_ISREG(status.st_mode)) fail_program(path, "is not a file");
  if (static_cast<std::uint64_t>(status.st_size) > kMaxProgramBytes)
    fail_program(path, "is longer than 256 MiB");
  const Fd copy(leat::detail::new_program_memfd("attestation-kernel"));
  if (!copy && errno == EACCES)
    fail_program(path, "sysctl vm.memfd_noexec is 2, which forbids programs in memory");
  if (!copy) fail_program(path, "memfd_create", errno);
  copy_program(path, file, copy);
  if (fcntl(copy.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    fail_program(path, "its copy cannot be sealed", errno);
  // What is open for writing, though sealed, is not executed: ETXTBSY.
  Fd sealed(open(path_of(copy).c_str(), O_RDONLY | O_CLOEXEC));
  if (!sealed) fail_program(path, "its copy cannot be opened", errno);
  // What ran would be the interpreter, which nobody measures.
  if (is_script(sealed)) fail_program(path, "is a script, not a program");
  return out_of_the_way(std::move(sealed));
}

void hide_process_of(const Fd& copy) { leat::detail::check(fchmod(copy.get(), 0111), "fchmod"); }

KernelProcess::KernelProcess(std::vector<std::string> command, std::chrono::milliseconds timeout)
    : command_(std::move(command)), timeout_(timeout) {
  if (command_.empty())
    throw Error(ErrorCode::kInvalidArgument, "no program of an attestation kernel is given");
}

Digest KernelProcess::start(const Digest& expected) {
  if (stream_) fail_kernel("it has been started before");
  const Fd program = sealed_copy_of(command_[0]);
  const std::string path = path_of(program);
  const Digest measured = sha384_of_file(path);
  if (!same(measured, expected))
    throw Refused(Refusal::kImage, command_[0] + " is not the vendor's kernel");
  hide_process_of(program);

  int pair[2];
  leat::detail::check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), "socketpair");
  Fd own(pair[0]);
  const Fd theirs = out_of_the_way(Fd(pair[1]));

  std::vector<char*> arguments;
  for (const std::string& word : command_) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::array<char*, 1> no_environment{};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), kKernelDescriptor);
  const int failure =
      posix_spawn(&pid_, path.c_str(), &actions, nullptr, arguments.data(), no_environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    pid_ = 0;
    fail_program(command_[0], "exec", failure);
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
