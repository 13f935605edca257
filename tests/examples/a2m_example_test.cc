// The example of attested append-only memory, run as a user would.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.h"

namespace leat::detail {
namespace {

using testing::HasSubstr;

constexpr const char* kA2m = "examples/trusted/a2m";

TEST(A2mExample, AnHonestHostIsVerifiedInAnotherProcess) {
  const ProgramResult result = run_program(kA2m, {"--entries", "100"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "verified: 101 entries, each as it was attested, none missing\n"
            "truncated: entries from 50 on, those before are forgotten\n");
}

TEST(A2mExample, EveryLieIsExposed) {
  const std::pair<const char*, const char*> lies[] = {
      {"forge", "exposed at entry 5: not an entry as the log's kernel attested it"},
      {"swap", "exposed at entry 5: another entry of the log"},
      {"hide", "exposed at entry 5: a false word about"},
      {"forget", "exposed at entry 5: a false word about"}};
  for (const auto& [lie, text] : lies) {
    const ProgramResult result = run_program(kA2m, {"--entries", "20", "--lie", lie});
    EXPECT_EQ(result.exit_code, 1) << lie;
    EXPECT_THAT(result.out, HasSubstr(text));
  }
}

TEST(A2mExample, HostAndVerifierOfTheirOwnWithFiles) {
  const ScratchFolder scratch;
  Program host(kA2m, {"--listen", "127.0.0.1:0", "--folder", scratch.path() + "/log"});
  const std::string address = host.wait_for("listening at ");
  const ProgramResult result = run_program(kA2m, {"--connect", address, "--entries", "50"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(host.wait().exit_code, 0);
  // Its kernel went with the process: what it left cannot be gone on with under the same keys.
  const ProgramResult again =
      run_program(kA2m, {"--listen", "127.0.0.1:0", "--folder", scratch.path() + "/log"});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("started again"));
}

}  // namespace
}  // namespace leat::detail
