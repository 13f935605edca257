// The examples of replicated systems, run as a user would.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.h"

namespace leat::detail {
namespace {

using testing::HasSubstr;

TEST(CounterExample, clients_count_together_also_with_a_follower_that_lies) {
  for (const char* lie : {"nobody", "follower"}) {
    const ProgramResult result =
        run_program("examples/trusted/counter", {"--requests", "3", "--lie", lie});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("its last addition made it 600\n"));
  }
}

TEST(ChainExample, all_nodes_say_the_same_or_the_liar_is_exposed) {
  const ProgramResult honest = run_program("examples/trusted/chain", {"--keys", "100"});
  EXPECT_EQ(honest.exit_code, 0) << honest.err;
  EXPECT_EQ(honest.out,
            "client 101: put 100 keys, erased 50, found 50; all 3 nodes said the same\n");
  const ProgramResult lie = run_program("examples/trusted/chain", {"--lie", "1"});
  EXPECT_EQ(lie.exit_code, 1);
  EXPECT_THAT(lie.out, HasSubstr("node 2 accuses 1: outputs that are not those of the commands, "
                                 "with evidence"));
}

TEST(ChainExample, a_liar_that_is_no_node_is_a_wrong_argument) {
  const ProgramResult result = run_program("examples/trusted/chain", {"--lie", "4"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--lie: there are 3 nodes"));
}

TEST(ChainExample, a_liar_is_replaced_by_a_spare_node) {
  const ProgramResult result =
      run_program("examples/trusted/chain", {"--lie", "1", "--spares", "1", "--keys", "100"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("the service accuses 1: outputs that are not those of the "
                                    "commands, with evidence"));
  EXPECT_THAT(result.out, HasSubstr("found 50; all 3 nodes said the same\n"));
}

}  // namespace
}  // namespace leat::detail
