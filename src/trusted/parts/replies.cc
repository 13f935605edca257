#include "trusted/parts/replies.h"

#include <algorithm>

#include "base/wire.h"

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

void Replies::refuse(const Signed& request, std::uint64_t most_bytes, Outbox& outbox) const {
  Bytes number(sizeof most_bytes), items;
  leat::detail::WireWriter(number).number(most_bytes);
  Items::append(items, number);
  outbox.send(request.sender, write_signed(key_, {.type = MessageType::kRefused,
                                                  .sender = self_,
                                                  .target = request.sender,
                                                  .epoch = epoch_,
                                                  .first = request.first,
                                                  .items = *Items::read(items, 1)}));
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
