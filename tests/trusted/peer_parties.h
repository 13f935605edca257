// Trees of PeerReview for tests: node 1 is the root, 2 and 3 its children, 4 the witness of all
// three; further nodes below 2.
#pragma once

#include "leat/trusted/peer_review.h"
#include "trusted/parties.h"

namespace leat::trusted {

constexpr PartyId kWitness = 4;
constexpr std::size_t kTreeParties = 4;
constexpr PartyId kThird = 9;  // a kernel that only receives

inline PeerReviewOptions tree_options(unsigned batch = 1) {
  PeerReviewOptions options{.nodes = {{1, 0, {kWitness}}, {2, 1, {kWitness}}, {3, 1, {kWitness}}},
                            .first_session = kFirstSession,
                            .batch = batch};
  options.audit_period = std::chrono::milliseconds(20);
  return options;
}

}  // namespace leat::trusted
