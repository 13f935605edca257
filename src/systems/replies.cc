#include "systems/replies.h"

#include <algorithm>

namespace leat::trusted::detail {

void Replies::send(const Done& done, Outbox& outbox) {
  const auto items = Items::read(done.outputs, done.count);
  if (!items) return;  // cannot be: the ledger wrote them
  Bytes reply = write_signed(key_, {.type = MessageType::kReply,
                                    .sender = self_,
                                    .target = done.client,
                                    .epoch = epoch_,
                                    .first = done.first,
                                    .items = *items});
  outbox.send(done.client, reply);
  auto& kept = kept_[done.client];
  if (kept.size() == kKept) kept.pop_front();
  kept.emplace_back(done.first, std::move(reply));
}

bool Replies::send_again(PartyId client, std::uint64_t first, Outbox& outbox) const {
  const auto kept = kept_.find(client);
  if (kept == kept_.end()) return false;
  const auto found =
      std::ranges::find(kept->second, first, [](const auto& one) { return one.first; });
  if (found == kept->second.end()) return false;
  outbox.send(client, found->second);
  return true;
}

}  // namespace leat::trusted::detail
