// Case 38: how long MACs are compared says nothing of where they differ. Instructions are counted,
// as time on a shared machine proves nothing.
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <optional>

#include "attest/mac.h"
#include "support/scale.h"

namespace leat::trusted::detail {
namespace {

using leat::detail::kThreadSanitizer;

// How many instructions a process executes that compares `a` with `b`; no value: it could not be
// traced, or the comparison was wrong.
std::optional<unsigned> instructions(const MacSlot& a, const MacSlot& b) {
  const bool equal = a == b;
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    // Once before, so that the function is bound.
    bool right = equal_in_constant_time(a, b) == equal;
    raise(SIGSTOP);
    right = equal_in_constant_time(a, b) == equal && right;
    raise(SIGUSR1);
    _exit(right ? 0 : 1);
  }
  int status = 0;
  const auto stopped_by = [&](int signal) {
    return waitpid(child, &status, 0) == child && WIFSTOPPED(status) && WSTOPSIG(status) == signal;
  };
  unsigned steps = 0;
  bool traced = stopped_by(SIGSTOP);
  while (traced && ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) == 0 && stopped_by(SIGTRAP))
    ++steps;
  traced = traced && WIFSTOPPED(status) && WSTOPSIG(status) == SIGUSR1;
  if (!WIFEXITED(status) && !WIFSIGNALED(status)) {
    ptrace(PTRACE_CONT, child, nullptr, nullptr);
    waitpid(child, &status, 0);
  }
  if (!traced || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return steps;
}

TEST(ConstantTime, macs_are_compared_by_the_same_instructions_wherever_they_differ) {
  if (kThreadSanitizer) GTEST_SKIP() << "what ThreadSanitizer executes would be counted too";
  MacSlot mac;
  mac.fill(std::byte{0x5a});
  const auto equal = instructions(mac, mac);
  ASSERT_TRUE(equal);
  EXPECT_GT(*equal, mac.size());
  for (const std::size_t at : {std::size_t{0}, std::size_t{31}, mac.size() - 1}) {
    MacSlot other = mac;
    other[at] ^= std::byte{1};
    EXPECT_EQ(instructions(mac, other), equal) << "the first difference is at byte " << at;
  }
}

}  // namespace
}  // namespace leat::trusted::detail
