// The examples of groups, run as a user would.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "support/program.h"

namespace leat::detail {
namespace {

using testing::HasSubstr;

constexpr const char* kGather = "examples/gather";

TEST(GatherExample, ComesNearToWhatIsWantedWithItsOwnProcesses) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--memory", "4000000"}, {"--values", "300000"}}) {
    std::vector<std::string> words{"--workers", "3", "--rounds", "20"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = run_program(kGather, words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("a group of 3 workers, 3 alive"));
    EXPECT_THAT(result.out, HasSubstr("20 rounds of "));
    EXPECT_THAT(result.out, testing::Not(HasSubstr("lost: ")));
  }
}

TEST(GatherExample, WorkersOfTheirOwnAndOneIsKilled) {
  Program master(kGather, {"--listen", "127.0.0.1:0", "--workers", "3", "--rounds", "3000"});
  const std::string address = master.wait_for("listening at ");
  std::vector<std::unique_ptr<Program>> workers;
  for (unsigned i = 0; i < 3; ++i)
    workers.push_back(
        std::make_unique<Program>(kGather, std::vector<std::string>{"--connect", address}));
  master.wait_for("a group of 3 workers");
  workers[1]->kill();
  const ProgramResult result = master.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("lost: worker "));
  EXPECT_EQ(workers[0]->wait().exit_code, 0);
  EXPECT_EQ(workers[2]->wait().exit_code, 0);
}

// What docs/groups.md shows is what is in the file.
TEST(GroupExample, EachWorkerDoesEachTask) {
  const ProgramResult result = run_program("examples/group", {});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "worker 0 did this\nworker 1 did this\nworker 2 did this\n"
            "worker 0 did that\nworker 1 did that\nworker 2 did that\n");
  std::string source = read_file(LEAT_SOURCE_FOLDER "/examples/group.cc");
  source.erase(0, source.find("#include"));
  EXPECT_THAT(read_file(LEAT_SOURCE_FOLDER "/docs/groups.md"), HasSubstr("```cpp\n" + source));
}

TEST(GatherExample, WrongArgumentsExitWithTwoAndTeach) {
  const std::vector<std::string> cases[] = {
      {"--workers", "0"}, {"--connect", "x:1", "--listen", "y:2"}, {"--nosuch"}, {"word"}};
  for (const auto& words : cases) {
    const ProgramResult result = run_program(kGather, words);
    EXPECT_EQ(result.exit_code, 2) << testing::PrintToString(words);
    EXPECT_THAT(result.err, HasSubstr("--help"));
  }
  EXPECT_THAT(run_program(kGather, {"--help"}).out, HasSubstr("Examples"));
  const ProgramResult poor = run_program(kGather, {"--memory", "1000"});
  EXPECT_EQ(poor.exit_code, 1);
  EXPECT_THAT(poor.err, HasSubstr("at least"));
}

}  // namespace
}  // namespace leat::detail
