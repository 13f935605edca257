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
                                    .request = done.request,
                                    .items = *items});
  outbox.send(done.client, reply);
  Kept& kept = kept_[done.client];
  kept.bytes += reply.size();
  kept.replies.emplace_back(done.request, std::move(reply));
  for (; kept.replies.size() > kMaxUnderWay || kept.bytes > kMaxKeptAnswerBytes;
       kept.replies.pop_front())
    kept.bytes -= kept.replies.front().second.size();
}

void Replies::send_before(std::uint64_t acknowledged, Outbox& outbox) {
  for (; !held_.empty() && held_.front().first < acknowledged; held_.pop_front())
    send(held_.front().second, outbox);
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

void Replies::send_again(const Signed& request, const Done* answer, Outbox& outbox) {
  const StateDigest digest = digest_of_request(request);
  if (const auto kept = kept_.find(request.sender); kept != kept_.end()) {
    const auto& replies = kept->second.replies;
    const auto found =
        std::ranges::find(replies, digest, [](const auto& one) { return one.first; });
    if (found != replies.end()) return outbox.send(request.sender, found->second);
  }
  if (std::ranges::any_of(held_, [&](const auto& one) { return one.second.request == digest; }))
    return;
  if (answer != nullptr && answer->request == digest) return send(*answer, outbox);
  refuse(request, 0, outbox);
}

}  // namespace leat::trusted::detail
