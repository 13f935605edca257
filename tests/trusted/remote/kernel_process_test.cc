// The kernel's process: started by the controller, given keys once.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <fstream>
#include <thread>
#include <utility>

#include "base/system_error.h"
#include "support/errors.h"
#include "support/peer_pair.h"
#include "support/program.h"
#include "support/remote_parties.h"
#include "support/scale.h"
#include "support/scratch.h"
#include "support/users.h"
#include "trusted/remote/exchange.h"
#include "trusted/remote/kernel_process.h"

namespace leat::trusted::remote {
namespace {

using leat::detail::error_of;
using leat::detail::hang_deadline;
using leat::detail::ScratchFolder;
using leat::detail::ScratchVariable;

constexpr const char* kProgram = LEAT_REMOTE_KERNEL;

// Reaps the kernel.
int exit_code(pid_t pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class KernelProcessTest : public testing::Test {
 protected:
  Parties parties_;
  const Digest measured_ = sha384_of_file(kProgram);
};

TEST_F(KernelProcessTest, TakesKeysAndIsEnabled) {
  testing::internal::CaptureStdout();
  KernelProcess kernel({kProgram});
  EXPECT_EQ(kernel.start(measured_), measured_);
  kernel.provision(parties_.secrets(1, 5));
  kernel.enable({5, {1, 2}});
  EXPECT_EQ(exit_code(kernel.pid()), 0);
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              testing::AllOf(testing::HasSubstr("kernel of device 1: session 1 pair"),
                             testing::HasSubstr("session 2 group")));
}

TEST_F(KernelProcessTest, R16_AnotherProgramIsNotStarted) {
  KernelProcess kernel({kProgram});
  expect_refused(Refusal::kImage, [&] { kernel.start(Digest{}); });
  EXPECT_EQ(kernel.pid(), 0);
  KernelProcess missing({"/nowhere/kernel"});
  expect_refused(Refusal::kKernel, [&] { missing.start(measured_); });
  expect_refused(Refusal::kKernel, [&] { missing.provision(parties_.secrets(1)); });
}

// The kernel of this test does not hide itself.
TEST_F(KernelProcessTest, IsHiddenFromItsUserFromItsFirstInstructionOn) {
  leat::detail::run_process("user", [&] {
    ASSERT_TRUE(geteuid() != 0 || leat::detail::become_nobody());
    KernelProcess kernel({kProgram, "silent"});
    kernel.start(measured_);
    const std::string process = "/proc/" + std::to_string(kernel.pid());
    for (const char* file : {"/mem", "/maps", "/exe"}) {
      const leat::detail::Fd opened(open((process + file).c_str(), O_RDONLY | O_CLOEXEC));
      EXPECT_FALSE(opened) << file;
    }
    EXPECT_NE(ptrace(PTRACE_SEIZE, kernel.pid(), nullptr, nullptr), 0);
    kill(kernel.pid(), SIGKILL);
    exit_code(kernel.pid());
  });
}

TEST_F(KernelProcessTest, R16_RunsTheSealedBytesThatWereMeasured) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may read the running program";

  const ScratchFolder folder;
  const std::string path = folder.write("kernel", leat::detail::read_file(kProgram), 0755);
  KernelProcess kernel({path, "silent"});
  EXPECT_EQ(kernel.start(measured_), measured_);
  // The file is only where the bytes came from.
  EXPECT_TRUE(std::ofstream(path, std::ios::binary | std::ios::in) << "another program");
  const std::string image = "/proc/" + std::to_string(kernel.pid()) + "/exe";
  EXPECT_EQ(sha384_of_file(image), measured_);
  const leat::detail::Fd running(open(image.c_str(), O_RDONLY | O_CLOEXEC));
  const int seals = fcntl(running.get(), F_GET_SEALS);
  EXPECT_EQ(seals < 0 ? 0 : seals & (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
            F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  kill(kernel.pid(), SIGKILL);
  exit_code(kernel.pid());
}

TEST_F(KernelProcessTest, R16_NothingOfTheEnvironmentReachesTheKernel) {
  const ScratchVariable leaks("LD_LIBRARY_PATH", "/of/the/controller");
  KernelProcess kernel({kProgram, "bare"});
  kernel.start(measured_);
  EXPECT_EQ(exit_code(kernel.pid()), 0);
}

TEST_F(KernelProcessTest, R16_WhatCannotBeMeasuredWholeIsNotStarted) {
  const ScratchFolder folder;
  const auto refuses = [](const std::string& path, const char* says) {
    KernelProcess kernel({path});
    try {
      kernel.start(Digest{});
      ADD_FAILURE() << path << " was started";
    } catch (const Refused& refused) {
      EXPECT_EQ(refused.refusal(), Refusal::kKernel);
      EXPECT_THAT(refused.what(), testing::HasSubstr(says));
    }
    EXPECT_EQ(kernel.pid(), 0);
  };
  refuses(folder.write("script", "#!/bin/sh\n", 0755), "script");
  const std::string long_file = folder.write("long", "", 0755);
  EXPECT_EQ(truncate(long_file.c_str(), (256L << 20) + 1), 0);
  refuses(long_file, "256 MiB");
  refuses(folder.path(), "not a file");
}

TEST_F(KernelProcessTest, KernelThatDiesOrIsSilentIsAnError) {
  KernelProcess dead({kProgram, "dead"});
  dead.start(measured_);
  EXPECT_EQ(exit_code(dead.pid()), 1);
  EXPECT_THROW(dead.provision(parties_.secrets(1)), Error);
  KernelProcess silent({kProgram, "silent"}, std::chrono::milliseconds(100));
  silent.start(measured_);
  expect_refused(Refusal::kKernel, [&] { silent.provision(parties_.secrets(1)); });
  kill(silent.pid(), SIGKILL);
  exit_code(silent.pid());
}

TEST_F(KernelProcessTest, R18_OneSetOfKeysInItsLife) {
  KernelProcess twice({kProgram, "twice"});
  twice.start(measured_);
  expect_refused(Refusal::kKernel, [&] { twice.provision(parties_.secrets(1)); });
  EXPECT_EQ(exit_code(twice.pid()), 1);

  // Keys instead of ENABLE.
  int pair[2];
  leat::detail::check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), "socketpair");
  KernelEnd end{leat::detail::Fd(pair[0])};
  const auto controller = leat::detail::plain_stream(leat::detail::Fd(pair[1]));
  const SecretBytes keys = encode(parties_.secrets(1));
  write_frame(*controller, Type::kSecrets, keys, hang_deadline());
  write_frame(*controller, Type::kSecrets, keys, hang_deadline());
  EXPECT_EQ(end.receive_secrets(hang_deadline()).sessions.size(), 2U);
  expect_refused(Refusal::kOrder, [&] { end.wait_enable(hang_deadline()); });
  expect_refused(Refusal::kOrder, [&] { end.enabled(); });
}

TEST_F(KernelProcessTest, R24_NotEnabledForAnotherEpochOrBeforeEnable) {
  int pair[2];
  leat::detail::check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), "socketpair");
  KernelEnd end{leat::detail::Fd(pair[0])};
  const auto controller = leat::detail::plain_stream(leat::detail::Fd(pair[1]));
  expect_refused(Refusal::kOrder, [&] { KernelEnd(leat::detail::Fd(dup(pair[0]))).enabled(); });
  write_frame(*controller, Type::kSecrets, encode(parties_.secrets(1, 5)), hang_deadline());
  write_frame(*controller, Type::kEnable, encode(Enable{4, {1, 2}}), hang_deadline());
  end.receive_secrets(hang_deadline());
  expect_refused(Refusal::kMembers, [&] { end.wait_enable(hang_deadline()); });
  expect_refused(Refusal::kOrder, [&] { end.enabled(); });
}

TEST_F(KernelProcessTest, WithoutAControllerItSaysSo) {
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                       [] { KernelEnd end{leat::detail::Fd(dup(STDERR_FILENO))}; }),
              testing::HasSubstr("controller"));
}

}  // namespace
}  // namespace leat::trusted::remote
