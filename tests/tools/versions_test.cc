// Every program tells its version by the same flag and in the same words.
#include <gtest/gtest.h>

#include <string>

#include "leat/version.h"
#include "support/program.h"

namespace leat::detail {
namespace {

TEST(Versions, AreToldByEveryProgramInTheSameWay) {
  for (const char* program : {"bench/leat-bench", "src/attestd/leat-attestd", "src/tools/leat-info",
                              "src/tools/leat-plan", "src/tools/leat-provision",
                              "src/tools/leat-run", "src/tools/leat-stat"}) {
    for (const char* flag : {"-v", "--version"}) {
      const ProgramResult result = run_program(program, {flag});
      EXPECT_EQ(result.exit_code, 0) << program << " " << flag << ": " << result.err;
      EXPECT_EQ(result.out, std::string("leat ") + version() + "\n") << program << " " << flag;
    }
  }
}

}  // namespace
}  // namespace leat::detail
