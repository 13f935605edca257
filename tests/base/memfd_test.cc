// Shared memory under a kernel that requires each memfd to be declared executable or not.
#include "base/memfd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "base/fd.h"
#include "base/system_error.h"
#include "verbs/table.h"

namespace leat::detail {
namespace {

// As Linux 6.3 to 6.5 with vm.memfd_noexec = 2; later ones take it for said. For this process and
// for good.
void refuse_files_that_might_be_executed() {
  constexpr unsigned kNoExecution = 8;  // MFD_NOEXEC_SEAL
  std::array<sock_filter, 6> filter{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kNoExecution, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{filter.size(), filter.data()};
  check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)");
  check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), "prctl(PR_SET_SECCOMP)");
}

TEST(MemfdTest, ShmWorksWhereFilesInMemoryMustNotBeExecuted) {
  const pid_t child = check(fork(), "fork");
  if (child == 0) {
    refuse_files_that_might_be_executed();
    const DeviceInfo shm = probe_device("shm");
    if (!shm.usable) std::fprintf(stderr, "%s\n", shm.why_not.c_str());
    std::_Exit(shm.usable ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(MemfdTest, FilesCanBeSealed) {
  const Fd file(check(new_memfd("leat-test"), "memfd_create"));
  EXPECT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
}

}  // namespace
}  // namespace leat::detail
