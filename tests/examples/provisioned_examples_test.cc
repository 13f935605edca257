// examples/trusted/provisioned.sh, run as a user would: each party is a process with a leat-attestd
// of its own, to which leat-provision has handed its sessions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <sstream>
#include <string>

#include "support/program.h"
#include "support/scratch.h"

namespace leat::detail {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ProgramResult provisioned(const Arguments& arguments) {
  return run_program(LEAT_SOURCE_FOLDER "/examples/trusted/provisioned.sh",
                     Arguments{"--build", LEAT_BUILD_FOLDER} + arguments);
}

// A system that runs on after its first clients; ended with the test.
class KeptSystem {
 public:
  explicit KeptSystem(const Arguments& arguments)
      : started(provisioned(Arguments{"--folder", folder(), "--keep"} + arguments)) {}
  KeptSystem(const KeptSystem&) = delete;
  KeptSystem& operator=(const KeptSystem&) = delete;
  ~KeptSystem() { EXPECT_EQ(provisioned({"--stop", folder()}).exit_code, 0); }

  std::string folder() const { return scratch_.path() + "/system"; }
  ProgramResult play(const std::string& program, const std::string& party,
                     const Arguments& more = {}) const {
    return run_program("examples/trusted/" + program,
                       Arguments{"--system", folder(), "--party", party} + more);
  }
  std::string said(const std::string& party) const {
    return read_file(folder() + "/" + party + "/said");
  }
  // The process of what the script calls so, such as "party 2"; 0 if it has none.
  pid_t process_of(const std::string& name) const {
    std::istringstream lines(read_file(folder() + "/processes"));
    pid_t pid = 0;
    for (std::string start, its; lines >> pid >> start && std::getline(lines >> std::ws, its);)
      if (its == name) return pid;
    return 0;
  }

 private:
  const ScratchFolder scratch_;

 public:
  const ProgramResult started;
};

TEST(ProvisionedCounter, clients_count_together_also_with_a_follower_that_lies) {
  const ProgramResult result = provisioned({"--lie", "follower", "counter", "--requests", "3"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("epoch 1: 3 devices attested and enabled, 3 sessions\n"),
                                HasSubstr("its last addition made it 600\n")));
}

// Its two halves have one kernel, so their records have one order. With a kernel for each it would
// be believed (LeadingTwice): each client would have counted its own additions and no other.
TEST(ProvisionedCounter, a_leader_that_leads_twice_is_not_believed_twice) {
  const ProgramResult result = provisioned({"--lie", "twice", "counter", "--requests", "3"});
  EXPECT_LE(count_of("its last addition made it 300\n", result.out), 1U) << result.out;
  EXPECT_THAT(result.out, HasSubstr("accuses 1: ")) << result.err;
}

TEST(ProvisionedCounter, a_replica_without_its_state_takes_no_kernel_that_was_used) {
  const KeptSystem system({"counter", "--requests", "1"});
  ASSERT_EQ(system.started.exit_code, 0) << system.started.err;
  const pid_t replica = system.process_of("party 2");
  ASSERT_GT(replica, 0);
  ASSERT_EQ(kill(replica, SIGKILL), 0);
  const ProgramResult again = system.play("counter", "2");
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("needs an attestation kernel that nobody has used"));
  // The others are enough.
  const ProgramResult client = system.play("counter", "103", {"--requests", "1"});
  EXPECT_THAT(client.out, HasSubstr("client 103: its last addition made it 300\n")) << client.err;
}

TEST(ProvisionedChain, a_liar_is_replaced_under_an_epoch_that_was_provisioned_ahead) {
  const ProgramResult result =
      provisioned({"--spares", "1", "--epochs", "2", "--lie", "1", "chain", "--keys", "100"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("epoch 2: 5 devices attested and enabled, 4 sessions\n"),
                                HasSubstr("epoch 2: the chain is 2 3 4\n"),
                                HasSubstr("found 50; all 3 nodes said the same\n")));
}

TEST(ProvisionedChain, a_service_without_a_next_epoch_takes_it_once_it_is_provisioned) {
  const KeptSystem system(
      {"--spares", "1", "--epochs", "1", "--lie", "1", "chain", "--keys", "10"});
  EXPECT_EQ(system.started.exit_code, 1) << "the chain cannot be replaced yet";
  EXPECT_THAT(system.said("5"), HasSubstr("waits for epoch 2: epoch 2 has not been provisioned"));
  const ProgramResult more = provisioned({"--more-epochs", "1", system.folder()});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  const ProgramResult client = system.play("chain", "102", {"--keys", "10"});
  EXPECT_THAT(client.out, HasSubstr("found 5; all 3 nodes said the same\n")) << client.err;
  EXPECT_THAT(system.said("5"), HasSubstr("epoch 2: the chain is 2 3 4\n"));
}

TEST(ProvisionedPeerReview, a_child_that_lies_is_exposed) {
  const ProgramResult result = provisioned({"--lie", "child", "peer_review", "--requests", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("the root says that it counted to 200\n"),
                                HasSubstr("witness 4 exposes node 3: "),
                                HasSubstr("its evidence proves it\n")));
}

TEST(ProvisionedA2m, the_verifier_finds_all_entries_or_the_lie) {
  const ProgramResult honest = provisioned({"a2m", "--entries", "50"});
  EXPECT_EQ(honest.exit_code, 0) << honest.err;
  EXPECT_THAT(honest.out,
              HasSubstr("verified: 51 entries, each as it was attested, none missing\n"));
  const ProgramResult lie = provisioned({"--lie", "hide", "a2m", "--entries", "50"});
  EXPECT_EQ(lie.exit_code, 1);
  EXPECT_THAT(lie.out, HasSubstr("exposed at entry 5: a false word about"));
}

TEST(ProvisionedScript, its_processes_end_with_it) {
  const ScratchFolder scratch;
  const std::string folder = scratch.path() + "/system";
  const ProgramResult result = provisioned({"--folder", folder, "counter", "--requests", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const ProgramResult part =
      run_program("examples/trusted/counter", {"--system", folder, "--party", "1"});
  EXPECT_THAT(part.err, HasSubstr("/1/1/socket: No such file or directory")) << "its daemon lives";
  // The folder is left, and is no folder for another system.
  EXPECT_THAT(provisioned({"--folder", folder, "counter"}).err, HasSubstr("exists already"));
}

TEST(ProvisionedScript, mistakes_are_named) {
  const auto fails = [](const Arguments& arguments, int code, const char* says) {
    const ProgramResult result = provisioned(arguments);
    EXPECT_EQ(result.exit_code, code) << says;
    EXPECT_THAT(result.err, HasSubstr(says));
  };
  fails({}, 2, "name a system");
  fails({"clock"}, 2, "there is no system 'clock'");
  fails({"--nodes", "1", "counter"}, 2, "--nodes is a number from 2 to 9, not '1'");
  fails({"--nodes"}, 2, "--nodes needs a value");
  fails({"--keeps", "counter"}, 2, "unknown option --keeps");
  fails({"--keep", "counter"}, 2, "--keep needs --folder");
  fails({"--keep", "a2m"}, 2, "the host of a2m serves one verifier");
  fails({"--spares", "1", "counter"}, 2, "only chain has spares");
  fails({"--stop", "/"}, 2, "/ is not the folder of a system");
  // At once, or with what the parties have said if they were slow to say it.
  const ProgramResult lie = provisioned({"--lie", "always", "counter"});
  EXPECT_EQ(lie.exit_code, 1);
  EXPECT_THAT(lie.out + lie.err, HasSubstr("--lie: always not in"));
  EXPECT_THAT(provisioned({"--help"}).out, HasSubstr("Exit code"));
}

TEST(ProvisionedScript, what_fails_while_it_sets_up_is_shown) {
  const ScratchFolder build;
  const auto script = [&](const std::string& program, const char* text) {
    build.write(program, std::string("#!/bin/sh\n") + text + "\n");
    ::chmod((build.path() + "/" + program).c_str(), 0700);
  };
  for (const char* folder :
       {"/src", "/src/tools", "/src/attestd", "/examples", "/examples/trusted"})
    ASSERT_EQ(::mkdir((build.path() + folder).c_str(), 0700), 0);
  script("src/attestd/leat-attestd", "exit 0");
  script("examples/trusted/make_parties", "touch \"$1/parties\"");
  script("examples/trusted/counter", "exit 0");
  // Not the last of what is called there.
  script("src/tools/leat-provision", "[ \"$1\" != vendor ] || { echo no vendor >&2; exit 1; }");
  const ProgramResult result = run_program(LEAT_SOURCE_FOLDER "/examples/trusted/provisioned.sh",
                                           {"--build", build.path(), "counter"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("setting up has failed: no vendor"));
}

TEST(SystemFolder, parties_of_a2m_are_its_host_and_its_verifier) {
  const ScratchFolder scratch;
  ASSERT_EQ(run_program("examples/trusted/make_parties",
                        {scratch.path(), "--nodes", "1", "--clients", "1", "--witnesses", "1"})
                .exit_code,
            0);
  const ProgramResult result =
      run_program("examples/trusted/a2m", {"--system", scratch.path(), "--party", "101"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("party 101 is neither the host nor the verifier"));
}

TEST(SystemFolder, what_is_no_system_is_named) {
  const ScratchFolder scratch;
  const auto fails = [&](const char* says) {
    const ProgramResult result =
        run_program("examples/trusted/counter", {"--system", scratch.path(), "--party", "1"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr(says));
  };
  fails("parties: cannot be read");
  const std::string key(64, 'a');
  for (const std::string& line :
       {"1 node " + key, "1 king " + key + " -", "x node " + key + " -", "1 node " + key + "g -",
        "1 node " + key + " - more", "0 node " + key.substr(1) + "g -"}) {
    scratch.write("parties", line + "\n");
    fails("line 1 is of no party");
  }
  scratch.write("parties", "101 client " + key + " -\n");
  fails("has no node");
  const ProgramResult half = run_program("examples/trusted/counter", {"--system", scratch.path()});
  EXPECT_EQ(half.exit_code, 2);
}

// Every process that can read it is that party.
TEST(SystemFolder, a_key_that_others_can_read_is_refused) {
  const ScratchFolder scratch;
  ASSERT_EQ(run_program("examples/trusted/make_parties", {scratch.path()}).exit_code, 0);
  ASSERT_EQ(chmod((scratch.path() + "/1/key").c_str(), 0644), 0);
  const ProgramResult result =
      run_program("examples/trusted/chain", {"--system", scratch.path(), "--party", "1"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("other users can read"));
}

}  // namespace
}  // namespace leat::detail
