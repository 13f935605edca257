// The receive side: what is handed out is a copy that was verified.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <utility>

#include "base/log.h"
#include "leat/error.h"
#include "transport/attested/attested.h"

namespace leat::detail {
namespace {

using trusted::Kind;
using trusted::Verdict;

[[noreturn]] void refuse_out_of_memory() {
  throw Error(ErrorCode::kResource, "out of memory for a message that has arrived, which is lost",
              "Lower max_message_bytes, and connect again.");
}

[[noreturn]] void refuse_incomplete(const std::string& what) {
  throw Error(ErrorCode::kAuthentication, what,
              "Someone between the two sides has changed or removed messages. Connect again.");
}

// Says at the end of a scope that nothing is pending. Release: see Checking.
struct Over {
  explicit Over(std::atomic<bool>& flag) : pending(flag) {}
  ~Over() { pending.store(false, std::memory_order_release); }
  Over(const Over&) = delete;
  Over& operator=(const Over&) = delete;

  std::atomic<bool>& pending;
};

// If the attestor did not answer, which says nothing of the message.
void check_answered(Verdict verdict) {
  if (trusted::is_unjudged(verdict))
    throw Error(ErrorCode::kUnavailable,
                "cannot verify a message: " + std::string(to_string(verdict)), "Connect again.");
}

}  // namespace

ReceiveResult AttestedTransport::try_receive(Context context, Delivery& delivery) {
  for (;;) {
    if (checking_) {
      if (!settle_checked()) return ReceiveResult::kNothing;
      if (auto& verified = checking_->verified[context]) {
        hand_out(*verified, delivery);
        verified.reset();
        return ReceiveResult::kMessage;
      }
    }
    check_whole(context);
    const std::uint64_t ticket = free_ticket();
    Delivery outer;
    const ReceiveResult result = inner_->try_receive(context, outer);
    if (result == ReceiveResult::kNothing) return result;
    if (result == ReceiveResult::kEnd) {
      if (ended_[context]) return result;
      refuse_incomplete("the end of context " + std::to_string(context) +
                        " is not attested: messages are missing");
    }
    // First the copy, then the proof, and what is handed out is the copy.
    Incoming incoming{.ticket = ticket, .record = copy_of(outer), .header = {}};
    Verdict verdict = look_at(incoming, context);
    if (verdict == Verdict::kOk) {
      if (checking_) {
        checking_->record = incoming;
        checking_->asked = false;
        checking_->pending.store(true, std::memory_order_release);
        continue;
      }
      verdict = session_.kernel().verify(incoming.record, incoming.header.kind);
    }
    if (!settle(incoming, context, verdict)) continue;
    hand_out(incoming, delivery);
    return ReceiveResult::kMessage;
  }
}

void AttestedTransport::hand_out(const Incoming& incoming, Delivery& delivery) {
  delivery.data = incoming.record.data() + trusted::kHeaderBytes;
  delivery.bytes = incoming.header.payload_bytes;
  delivery.ticket = incoming.ticket;
  delivery.context = incoming.header.stream;
  delivery.must_release = true;
}

// Of the buffer that the next message goes to, before that is taken off the inner transport.
std::uint64_t AttestedTransport::free_ticket() {
  if (out_of_memory_) [[unlikely]]
    refuse_out_of_memory();
  return buffers_.next();
}

std::span<const std::byte> AttestedTransport::copy_of(Delivery& delivery) try {
  const auto record = buffers_.take(delivery.bytes);
  if (delivery.bytes != 0) std::memcpy(record.data(), delivery.begin(), delivery.bytes);
  if (delivery.must_release) inner_->release(delivery);
  return record;
} catch (const std::bad_alloc&) {
  out_of_memory_ = true;
  refuse_out_of_memory();
}

// What the attestor need not be asked for: whether it is a record of this context.
Verdict AttestedTransport::look_at(Incoming& incoming, Context context) const {
  const auto header = trusted::read_header(incoming.record);
  if (!header) return Verdict::kFormat;
  incoming.header = *header;
  if (header->session != session_.id() || header->stream != context) return Verdict::kSession;
  const bool expected = header->kind == kinds_[context] || header->kind == Kind::kEnd;
  return expected ? Verdict::kOk : Verdict::kKind;
}

// Returns whether it is a message to be handed out.
bool AttestedTransport::settle(const Incoming& incoming, Context context, Verdict verdict) {
  if (verdict == Verdict::kOk) [[likely]]
    ++turns_[context];
  if (verdict == Verdict::kOk && incoming.header.kind != Kind::kEnd) [[likely]]
    return true;
  buffers_.give_back(incoming.ticket);
  if (verdict == Verdict::kOk)
    ended_[context] = true;
  else
    refuse(verdict, incoming, context);
  return false;
}

// Returns false while leat-attestd has not answered. If it does not serve any more, that is told at
// each call.
bool AttestedTransport::settle_checked() {
  Checking& checking = *checking_;
  if (!checking.record) return true;
  if (!checking.asked) {
    checking.question = {.statement = {.kind = checking.record->header.kind},
                         .bytes = checking.record->record};
    checking.asked = checking.open.begin({&checking.question, 1}) != 0;
    if (!checking.asked) return false;
  }
  if (!checking.open.try_finish()) return false;
  check_answered(checking.question.verdict);
  const Incoming incoming = *checking.record;
  checking.record.reset();  // whatever the calls below throw
  const Over over{checking.pending};
  const Context context = incoming.header.stream;
  if (settle(incoming, context, checking.question.verdict)) checking.verified[context] = incoming;
  return true;
}

void AttestedTransport::refuse(Verdict why, const Incoming& incoming, Context context) {
  check_answered(why);
  refused_.add(1);
  // It is authentic, or else its counter would not have been looked at.
  if (why == Verdict::kCounter && incoming.header.counter > turns_[context])
    missing_[context] = Missing::kUntold;
  if (std::exchange(told_, true)) return;
  log(LogLevel::kWarn, describe() + ": refused a message of context " + std::to_string(context) +
                           ", which will be missing: " + std::string(to_string(why)));
}

void AttestedTransport::check_whole(Context context) {
  if (missing_[context] == Missing::kNothing) [[likely]]
    return;
  missing_[context] = Missing::kTold;
  refuse_incomplete("a message of context " + std::to_string(context) +
                    " is missing, and what was sent behind it has come");
}

void AttestedTransport::release(Delivery& delivery) noexcept {
  buffers_.give_back(delivery.ticket);
}

}  // namespace leat::detail
