// leat-attestd daemons that a controller has given the sessions of an epoch, as the parties of a
// trusted system find them.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "leat/attest/identity.h"
#include "leat/trusted/chain.h"
#include "leat/trusted/provisioned.h"
#include "support/errors.h"
#include "support/kernel_daemon.h"
#include "support/scratch.h"
#include "trusted/parts/messages.h"
#include "trusted/remote/crypto.h"

namespace leat::trusted::remote {
namespace {

using leat::detail::expect_error;

// The daemons of nodes 1 and 2, each with the other's sessions; without a vendor, whose part the
// test has.
class ProvisionedKernelsTest : public testing::Test {
 protected:
  std::string folder_of(PartyId node) const { return folder_.path() + "/" + std::to_string(node); }

  // In that node's folder for `place`, which is the epoch unless somebody has mixed them up.
  void provision(PartyId node, std::uint64_t epoch, std::uint64_t place) {
    Secrets secrets{.device = node, .epoch = epoch, .sessions = {}, .reply_key = SecretBytes(32)};
    fill_random(secrets.reply_key);
    for (const PartyId sender : {1U, 2U}) {
      SecretBytes key(32);
      fill_random(key);
      secrets.sessions.push_back(group_session(sender, sender, 2, std::move(key)));
    }
    const std::string there = folder_of(node) + "/" + std::to_string(place);
    mkdir(folder_of(node).c_str(), 0700);
    ASSERT_EQ(mkdir(there.c_str(), 0700), 0);
    daemons_.push_back(std::make_unique<KernelDaemon>(secrets, there + "/socket"));
    write_key(there, leat::detail::hex(SigningKey(secrets.reply_key).public_key()) + "\n");
  }
  void write_key(const std::string& there, const std::string& key) const {
    folder_.write(there.substr(folder_.path().size() + 1) + "/key", key);
  }
  std::unique_ptr<AttestationKernel> open(PartyId node, std::uint64_t epoch,
                                          std::vector<PartyId> nodes = {1, 2}) const {
    return provisioned_kernels({.self = node, .folder = folder_of(node)})(
        {epoch, std::move(nodes)});
  }

  const leat::detail::ScratchFolder folder_;
  std::vector<std::unique_ptr<KernelDaemon>> daemons_;
};

TEST_F(ProvisionedKernelsTest, each_epoch_has_an_attestor_of_its_own) {
  provision(1, 1, 1);
  provision(1, 2, 2);
  for (const std::uint64_t epoch : {1U, 2U}) {
    const auto kernel = open(1, epoch, {2, 1});  // in whichever order they are
    EXPECT_EQ(kernel->device(), 1U);
    EXPECT_EQ(kernel->epoch(), epoch);
    Proof proof;
    ASSERT_EQ(kernel->attest({.session = 1}, {}, proof), Verdict::kOk);
    EXPECT_EQ(kernel->counters(1, 0).value_or(Counters{}).next_sent, 1U);
  }
}

TEST_F(ProvisionedKernelsTest, what_is_not_the_epochs_attestor_is_refused) {
  provision(1, 1, 1);
  provision(1, 2, 3);  // another epoch's
  provision(2, 1, 1);
  expect_error(ErrorCode::kUnavailable, [this] { open(1, 2); });
  expect_error(ErrorCode::kInvalidArgument, [this] { open(1, 3); });
  // No session of node 3.
  expect_error(ErrorCode::kInvalidArgument, [this] { open(1, 1, {1, 3}); });
  // Another device's, and then one that proves another key.
  const std::string first = folder_of(1) + "/1", second = folder_of(2) + "/1";
  ASSERT_EQ(rename((second + "/socket").c_str(), (first + "/socket").c_str()), 0);
  expect_error(ErrorCode::kAuthentication, [this] { open(1, 1); });
  ASSERT_EQ(rename((second + "/key").c_str(), (first + "/key").c_str()), 0);
  expect_error(ErrorCode::kInvalidArgument, [this] { open(1, 1); });
}

// An empty key would stand for any daemon.
TEST_F(ProvisionedKernelsTest, a_file_without_a_key_is_refused) {
  provision(1, 1, 1);
  const std::string there = folder_of(1) + "/1";
  for (const std::string& key : {std::string(), std::string("\n"), std::string(63, 'a'),
                                 std::string(65, 'a'), std::string(64, '\xff')}) {
    write_key(there, key);
    expect_error(ErrorCode::kInvalidArgument, [this] { open(1, 1); });
  }
}

// It was killed; its daemon was not. Whatever it would say now, it might have said something else.
TEST_F(ProvisionedKernelsTest,
       a_node_that_lost_its_state_is_refused_by_what_its_daemon_has_counted) {
  provision(1, 1, 1);
  const SigningKey key;
  const Directory directory({{1, key.public_key(), "127.0.0.1:1"}});
  const ChainOptions options{.nodes = {1, 2}};
  const auto make_store = [] { return std::make_unique<KeyValueMachine>(); };
  {
    const auto kernel = open(1, 1);
    const ChainNode node(*kernel, directory, key, make_store, options);
    detail::attest(*kernel, {.session = 1}, Bytes(8));
  }
  const auto kernel = open(1, 1);
  expect_error(ErrorCode::kInvalidArgument,
               [&] { ChainNode(*kernel, directory, key, make_store, options); });
}

}  // namespace
}  // namespace leat::trusted::remote
