// Messages of the trusted systems: from strangers, and from members that attest whatever they like.
// Nothing that no client signed is ever executed.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fuzz/property.h"
#include "leat/error.h"
#include "systems/ledger.h"
#include "systems/messages.h"
#include "systems/parties.h"
#include "systems/quorum.h"

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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using leat::detail::require;
  if (size == 0) return 0;
  const View input = std::as_bytes(std::span(data + 1, size - 1));
  const auto kernel = kernel_of(2, 3);
  static const SigningKey key = key_of(2), client_key = key_of(kClient);
  auto options = bft_options(3, 4);
  options.checkpoint_records = 2;
  BftReplica replica(*kernel, directory(), key, make_counter, options);
  const Bytes before = replica.save();
  Silence outbox;
  switch (data[0] % 6) {
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
  require(replica.save() == before, "nothing is executed that no client signed");
  return 0;
}
