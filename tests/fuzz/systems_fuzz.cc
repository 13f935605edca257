// Messages of the trusted systems: from strangers, and from members that attest whatever they like.
// Nothing that no client signed is ever executed.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fuzz/property.h"
#include "leat/error.h"
#include "trusted/parties.h"
#include "trusted/parts/configuration_messages.h"
#include "trusted/parts/judge.h"
#include "trusted/parts/ledger.h"
#include "trusted/parts/messages.h"
#include "trusted/parts/quorum.h"
#include "trusted/peer_parties.h"
#include "trusted/peer_review/replay.h"

namespace {

using namespace leat::trusted;
using namespace leat::trusted::detail;

struct Silence final : Outbox {
  void send(PartyId, std::span<const std::byte>) override {}
};

const Directory& directory() {
  static const Directory known = [] {
    std::vector<Party> all;
    for (PartyId id = 1; id <= 3; ++id) all.push_back({id, key_of(id).public_key(), "a:1"});
    all.push_back({kClient, key_of(kClient).public_key(), {}});
    return Directory(all);
  }();
  return known;
}

// PeerReview: what a node or witness makes of messages that nobody, or a liar, attested and signed.
void peer_review(unsigned which, View input) {
  using leat::detail::require;
  static const SigningKey key = key_of(2);
  static const auto kernel = kernel_of(kThird, kTreeParties);
  static const PeerReviewOptions options = tree_options();
  if (which == 6) {
    const auto entry = read_log_entry(input);
    if (entry)
      require(std::ranges::equal(write_log_entry(*entry), input), "an entry is written as read");
    // The root attests it.
    const auto root = kernel_of(1, kTreeParties), own = kernel_of(2, kTreeParties);
    Silence outbox;
    PeerNode node(*own, directory(), key, make_counter, options);
    const Bytes record = attest(*root, {.session = kFirstSession}, input);
    node.receive(1, write_record(record), {}, outbox);
    node.settle({}, outbox);
    require(node.log_records() <= 1, "one message, at most one answer");
  } else if (which == 7) {
    if (const auto piece = read_piece(input)) {
      Bytes entries;
      for (const auto& [record, received] : piece->entries) {
        std::vector<Bytes> copies;
        for (const View one : received) copies.emplace_back(one.begin(), one.end());
        append_entry(entries, record, copies);
      }
      PeerAudit audit(*kernel, directory(), make_counter, options, 1);
      require(audit.take(input) == PeerAudit::Outcome::kNothing, "nobody signed that piece");
      require(audit.take(write_piece(key, *piece, entries)) != PeerAudit::Outcome::kComplete,
              "no log of what nobody attested");
    }
  } else {
    if (const auto proof = read_proof(input))
      require(std::ranges::equal(write_proof(*proof), input), "a proof is written as read");
    require(!judge(*kernel, directory(), make_counter, options, input),
            "a proof that nobody signed exposes nobody");
  }
}

// A chain's configuration service, and its nodes.
void configuration(unsigned which, View input) {
  using leat::detail::require;
  static const SigningKey key = key_of(2);
  const KernelFactory make_kernel = [](const Configuration&) { return kernel_of(2, 3); };
  const ConfigurationOptions options{.service = 1, .pool = {2, 3}, .length = 2};
  Silence outbox;
  if (which == 9) {
    if (const auto announced = read_configuration(input))
      require(!verify_configuration(directory(), 1, *announced), "nobody signed that");
    ChainMember member(2, directory(), key, make_counter, make_kernel, options);
    member.receive(1, input, {}, outbox);
    member.settle({}, outbox);
  } else if (which == 10) {
    const auto kernel = kernel_of(kThird, 3);
    if (const auto history = read_history(input)) {
      Ledger ledger(directory(), kSystemEpoch, make_counter, true);
      const auto replayed = replay(*kernel, bft_options(3, 4), history->proof, ledger);
      require(!replayed || (replayed->records == 0 && !replayed->fault), "nobody attested that");
    }
  } else {
    if (const auto complaint = read_complaint(input))
      require(std::ranges::equal(write_complaint(complaint->request, complaint->replies), input),
              "a complaint is written as read");
    ConfigurationService service(directory(), key, make_counter, make_kernel, options);
    for (const PartyId from : {2U, kClient}) service.receive(from, input, {}, outbox);
    service.idle({}, outbox);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using leat::detail::require;
  if (size == 0) return 0;
  const View input = std::as_bytes(std::span(data + 1, size - 1));
  const unsigned which = data[0] % 12;
  if (which >= 6) {
    if (which >= 9)
      configuration(which, input);
    else
      peer_review(which, input);
    return 0;
  }
  const auto kernel = kernel_of(2, 3);
  static const SigningKey key = key_of(2), client_key = key_of(kClient);
  auto options = bft_options(3, 4);
  options.checkpoint_records = 2;
  BftReplica replica(*kernel, directory(), key, make_counter, options);
  const Bytes before = replica.save();
  Silence outbox;
  switch (which) {
    case 0:
      for (const PartyId from : {1U, 3U, kClient}) replica.receive(from, input, {}, outbox);
      break;
    case 1: {
      const auto leader = kernel_of(1, 3);
      replica.receive(1, write_order(attest(*leader, {.session = kFirstSession}, input)), {},
                      outbox);
      break;
    }
    case 2: {
      const auto follower = kernel_of(3, 3);
      const Bytes own = attest(*follower, {.session = kFirstSession + 2}, input);
      replica.receive(3, write_blobs(MessageType::kExecuted, {own}), {}, outbox);
      break;
    }
    case 3: {
      Quorum quorum(directory(), client_key,
                    {.self = kClient, .epoch = kSystemEpoch, .nodes = {1, 2, 3}, .quorum = 1}, 1);
      quorum.submit(additions(1));
      require(!quorum.receive(input) && !quorum.take(), "no answer that no node signed");
      break;
    }
    case 4:
      require(!judge(*kernel, directory(), make_counter, options, input),
              "evidence that nobody attested proves nothing");
      break;
    case 5: {
      Ledger ledger(directory(), kSystemEpoch, make_counter);
      if (ledger.load(input)) require(ledger.waiting() == 0, "nothing waits that no client signed");
      break;
    }
  }
  replica.settle({}, outbox);
  require(replica.save() == before, "nothing is executed that no client signed");
  return 0;
}
