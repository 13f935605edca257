// A leader that tells two halves of the parties two histories: what it needs for that is a second
// kernel. And nodes that were started again, whose kernels were not.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "examples/trusted/leads_twice.h"
#include "leat/error.h"
#include "trusted/parties.h"
#include "trusted/peer_parties.h"
#include "trusted/schedule.h"

namespace leat::trusted {
namespace {

using namespace std::chrono_literals;

// Leader 1 with two replicas, whose attestors the caller made; followers 2 and 3, which do not hear
// each other; and two clients.
class TwoHalves final {
 public:
  TwoHalves(AttestationKernel& even, AttestationKernel& odd) : schedule(1) {
    schedule.held = {{2, 3}, {3, 2}};
    schedule.add(1, std::make_unique<LeadsTwice>(replica(even), replica(odd)));
    for (const auto& kernel : kernels_) schedule.add(kernel->device(), replica(*kernel));
    for (const PartyId id : {kClient, kOtherClient}) {
      auto client = std::make_unique<ScheduledClient>(id, directory_, std::vector<PartyId>{1, 2, 3},
                                                      2, kSystemEpoch);
      client->submit(additions(3));
      clients_.push_back(client.get());
      schedule.add(id, std::move(client));
    }
  }

  // To what the clients believe that they have counted.
  std::vector<std::uint64_t> run() {
    std::vector<std::uint64_t> believed;
    schedule.run(20s);
    schedule.held.clear();
    schedule.run(20s);
    for (ScheduledClient* client : clients_)
      if (const auto answer = client->take())
        believed.push_back(*CounterMachine::value_of(answer->outputs.back()));
    return believed;
  }

  Schedule schedule;
  std::vector<Fault> faults;

 private:
  std::unique_ptr<Participant> replica(AttestationKernel& kernel) {
    const PartyId id = kernel.device();
    return std::make_unique<BftReplica>(kernel, directory_, keys_[id - 1], make_counter,
                                        bft_options(3),
                                        [this](const Fault& fault) { faults.push_back(fault); });
  }

  const Directory directory_{parties(3)};
  const std::vector<SigningKey> keys_ = [] {
    std::vector<SigningKey> keys;
    for (const PartyId id : {1U, 2U, 3U}) keys.push_back(key_of(id));
    return keys;
  }();
  const std::vector<std::unique_ptr<LocalKernel>> kernels_ = [] {
    std::vector<std::unique_ptr<LocalKernel>> kernels;
    for (const PartyId id : {2U, 3U}) kernels.push_back(kernel_of(id, 3));
    return kernels;
  }();
  std::vector<ScheduledClient*> clients_;
};

// What a host can do that has the session keys itself.
TEST(LeadingTwice, with_two_kernels_two_clients_believe_two_histories_and_nobody_is_accused) {
  const auto even = kernel_of(1, 3), odd = kernel_of(1, 3);
  TwoHalves halves(*even, *odd);
  // Clients ask the leader, and nobody else as long as it answers.
  halves.schedule.cut = {{kClient, 2}, {kClient, 3}, {kOtherClient, 2}, {kOtherClient, 3}};
  EXPECT_EQ(halves.run(), (std::vector<std::uint64_t>{3, 3})) << "six additions were made";
  EXPECT_TRUE(halves.faults.empty());
}

TEST(LeadingTwice, with_one_kernel_one_history_is_believed_and_the_leader_is_accused) {
  const auto kernel = kernel_of(1, 3);
  TwoHalves halves(*kernel, *kernel);
  const auto believed = halves.run();
  EXPECT_EQ(std::set(believed.begin(), believed.end()).size(), believed.size())
      << "each has counted its own additions and no other";
  EXPECT_FALSE(halves.faults.empty());
  for (const Fault& fault : halves.faults) EXPECT_EQ(fault.accused, 1U);
}

// Expects that `make` is refused for what the attestor was used for.
void expect_used(const std::function<void()>& make) {
  try {
    make();
    ADD_FAILURE() << "it took a kernel that was used";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("that nobody has used"), std::string::npos)
        << error.what();
  }
}

// A node that comes back without its state, while its kernel has gone on: it would say something
// else with the next counter than what it would have said with those before.
class KernelsThatWereUsed : public testing::Test {
 protected:
  // `make` makes a node of that kernel.
  void expect_only_unused(const std::function<void(AttestationKernel&)>& make) {
    const auto own = kernel_of(2, 4), other = kernel_of(1, 4);
    make(*own);
    // Of another node it has taken one record, and itself it has said nothing.
    const Bytes record = detail::attest(*other, {.session = kFirstSession}, Bytes(8));
    ASSERT_EQ(own->verify_stateless(record, Kind::kSend), Verdict::kOk);
    make(*own);
    ASSERT_EQ(own->verify(record, Kind::kSend), Verdict::kOk);
    expect_used([&] { make(*own); });
    // It has said something itself.
    const auto said = kernel_of(2, 4);
    detail::attest(*said, {.session = kFirstSession + 1}, Bytes(8));
    expect_used([&] { make(*said); });
  }

  const Directory directory_{parties(4)};
  const SigningKey key_ = key_of(2);
};

TEST_F(KernelsThatWereUsed, no_replica_of_bft_takes_one) {
  expect_only_unused([this](AttestationKernel& kernel) {
    const BftReplica replica(kernel, directory_, key_, make_counter, bft_options(3));
  });
}

TEST_F(KernelsThatWereUsed, no_node_of_a_chain_takes_one) {
  expect_only_unused([this](AttestationKernel& kernel) {
    const ChainNode node(kernel, directory_, key_, make_store, {.nodes = {1, 2, 3}});
  });
}

TEST_F(KernelsThatWereUsed, no_node_of_peer_review_takes_one) {
  expect_only_unused([this](AttestationKernel& kernel) {
    const PeerNode node(kernel, directory_, key_, make_counter, tree_options());
  });
}

}  // namespace
}  // namespace leat::trusted
