// Requests larger than an attestation kernel attests at once, in each of the systems: refused with
// a reason, and the nodes go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "leat/error.h"
#include "leat/trusted/chain.h"
#include "support/errors.h"
#include "trusted/forwarding_kernel.h"
#include "trusted/nodes.h"
#include "trusted/peer_parties.h"

namespace leat::trusted {
namespace {

using namespace std::chrono_literals;

// As a leat-attestd with --max-payload 20000.
class SmallKernel final : public ForwardingKernel {
 public:
  using ForwardingKernel::ForwardingKernel;
  std::size_t max_payload_bytes() const noexcept override { return 20'000; }
};

class LargeRequests : public testing::TestWithParam<std::string> {};

TEST_P(LargeRequests, are_refused_with_a_reason_and_the_service_goes_on) {
  const std::string system = GetParam();
  Nodes nodes(kTreeParties - 1);
  for (const PartyId id : nodes.ids())
    nodes.start(
        id,
        [&](PartyId, AttestationKernel& kernel, const SigningKey& key,
            FaultHook hook) -> std::unique_ptr<Participant> {
          static SmallKernel small(kernel);  // one in each process
          if (system == "counter")
            return std::make_unique<BftReplica>(small, nodes.directory(), key, make_counter,
                                                bft_options(3, 16), std::move(hook));
          if (system == "chain")
            return std::make_unique<ChainNode>(
                small, nodes.directory(), key, make_counter,
                ChainOptions{.nodes = nodes.ids(), .first_session = kFirstSession, .batch = 16},
                std::move(hook));
          PeerReviewOptions tree = tree_options(16);
          for (auto& node : tree.nodes) node.witnesses.clear();
          return std::make_unique<PeerNode>(small, nodes.directory(), key, make_counter, tree);
        });
  const SigningKey key = key_of(kClient);
  ClientOptions options = nodes.client_options(system == "counter" ? 2 : 3);
  options.retry_after = 50ms;
  options.timeout = 30s;
  Client client(nodes.directory(), key, options);
  // Commands that are not numbers, and add nothing.
  const std::vector<Bytes> large(3, Bytes(8000));
  const std::string reason =
      leat::detail::error_of(ErrorCode::kTooLarge, [&] { client.call(large); });
  EXPECT_THAT(reason, testing::HasSubstr("attests requests of up to"));
  EXPECT_THAT(reason, testing::HasSubstr("--max-payload"));
  EXPECT_EQ(CounterMachine::value_of(client.call(additions(100)).back()), 100U);
  EXPECT_FALSE(nodes.report(0ms));
}

INSTANTIATE_TEST_SUITE_P(Systems, LargeRequests, testing::Values("counter", "chain", "peer_review"),
                         [](const auto& system) { return system.param; });

}  // namespace
}  // namespace leat::trusted
