#include "attestd/sandbox.h"

#include <grp.h>
#include <pwd.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <memory>
#include <string_view>

#include "base/system_error.h"
#include "leat/error.h"
#include "trusted/remote/kernel_process.h"

namespace leat::attestd {

using leat::detail::check;
using leat::detail::system_error;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// No file is opened, no process or connection made, no memory made executable.
constexpr int kAllowed[] = {
    // serving
    SCMP_SYS(epoll_wait), SCMP_SYS(epoll_pwait), SCMP_SYS(epoll_ctl), SCMP_SYS(futex),
    SCMP_SYS(accept4), SCMP_SYS(getsockopt), SCMP_SYS(sendmsg), SCMP_SYS(memfd_create),
    SCMP_SYS(ftruncate), SCMP_SYS(fcntl), SCMP_SYS(eventfd2), SCMP_SYS(close), SCMP_SYS(getrandom),
    SCMP_SYS(clock_gettime), SCMP_SYS(clock_nanosleep), SCMP_SYS(sched_yield),
    // memory
    SCMP_SYS(munmap), SCMP_SYS(brk), SCMP_SYS(mlock), SCMP_SYS(munlock), SCMP_SYS(madvise),
    SCMP_SYS(mremap),
    // the controller's channel, the log, and the end
    SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(sendto),
    SCMP_SYS(recvfrom), SCMP_SYS(gettid), SCMP_SYS(getpid), SCMP_SYS(unlink), SCMP_SYS(unlinkat),
    SCMP_SYS(rt_sigreturn), SCMP_SYS(rt_sigprocmask), SCMP_SYS(exit), SCMP_SYS(exit_group),
    SCMP_SYS(tgkill), SCMP_SYS(restart_syscall)};

bool runs_from_memory() {
  std::array<char, 16> program{};
  return readlink("/proc/self/exe", program.data(), program.size() - 1) > 0 &&
         std::string_view(program.data()).starts_with("/memfd:");
}

void refuse_tracer() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word && word != "TracerPid:") continue;
  if (!(status >> word))
    throw Error(ErrorCode::kUnavailable,
                "/proc/self/status does not say whether a process traces leat-attestd",
                "Mount /proc.");
  if (word != "0")
    throw Error(ErrorCode::kUnavailable,
                "process " + word + " traces leat-attestd, and could read the keys that it takes",
                "Start it without a tracer; root may trace it once it serves.");
}

struct Release {
  void operator()(scmp_filter_ctx filter) const { seccomp_release(filter); }
};

}  // namespace

void start_hidden(char** arguments) {
  constexpr int kReadable = 1;  // SUID_DUMP_USER: as exec() leaves it for an ordinary program
  if (geteuid() == 0 || runs_from_memory() || prctl(PR_GET_DUMPABLE) != kReadable) {
    prctl(PR_SET_NAME, "leat-attestd");  // of a copy the name would be a number
    return;
  }
  try {
    const auto copy = trusted::remote::sealed_copy_of("/proc/self/exe");
    trusted::remote::hide_process_of(copy);
    fexecve(copy.get(), arguments, environ);
    throw system_error("fexecve", errno);
  } catch (const Error& error) {
    throw Error(ErrorCode::kUnavailable,
                std::string("leat-attestd cannot hide from its user's processes: ") + error.what(),
                "Let root start it with --user, or make the program root's, with mode 0711.");
  }
}

void hide_memory() {
  const rlimit none{0, 0};
  check(setrlimit(RLIMIT_CORE, &none), "setrlimit(RLIMIT_CORE)");
  check(prctl(PR_SET_DUMPABLE, 0), "prctl(PR_SET_DUMPABLE)");
  refuse_tracer();
}

bool lock_memory() {
  // With a limit later allocations would fail where they now only might be swapped.
  const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
  if (setrlimit(RLIMIT_MEMLOCK, &unlimited) != 0) return false;
  return mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0;
}

void become(const std::string& user) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): before there is another thread
  const passwd* entry = getpwnam(user.c_str());
  if (entry == nullptr)
    throw Error(ErrorCode::kInvalidArgument, "--user " + user + ": no such user");
  const uid_t uid = entry->pw_uid;
  if (uid == geteuid() && uid != 0) return;
  const gid_t gid = entry->pw_gid;
  check(setgroups(0, nullptr), "setgroups");
  check(setresgid(gid, gid, gid), "setresgid");
  check(setresuid(uid, uid, uid), "setresuid");
}

bool restrict_system_calls() {
  if (kSanitized) return false;
  const std::unique_ptr<void, Release> filter(seccomp_init(SCMP_ACT_ERRNO(EPERM)));
  const auto require = [](int result, const char* call) {
    if (result != 0) throw system_error(call, -result);
  };
  if (!filter) throw system_error("seccomp_init", ENOMEM);
  for (const int call : kAllowed)
    require(seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, call, 0), "seccomp_rule_add");
  const scmp_arg_cmp not_executable{2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0};
  for (const int call : {SCMP_SYS(mmap), SCMP_SYS(mprotect)})
    require(seccomp_rule_add_array(filter.get(), SCMP_ACT_ALLOW, call, 1, &not_executable),
            "seccomp_rule_add(mmap)");
  require(seccomp_load(filter.get()), "seccomp_load");
  return true;
}

}  // namespace leat::attestd
