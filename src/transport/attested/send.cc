// The send side: what has its counter leaves as it was attested.
#include <algorithm>
#include <cstring>

#include "leat/error.h"
#include "transport/attested/attested.h"
#include "transport/parts/refusals.h"

namespace leat::detail {
namespace {

using trusted::Kind;
using trusted::Proof;
using trusted::Verdict;

[[noreturn]] void refuse_to_attest(Verdict why) {
  throw Error(ErrorCode::kUnavailable, "cannot attest a message: " + std::string(to_string(why)),
              "Connect again.");
}

}  // namespace

SendResult AttestedTransport::try_send(std::span<const std::byte> message, Context context) {
  records_.check_send(context);
  check_kind(context, Kind::kSend);
  return send(message, statement(context, Kind::kSend));
}

SendResult AttestedTransport::try_write(std::span<const std::byte> bytes, Context context,
                                        std::uint32_t slot, std::uint64_t offset) {
  check_kind(context, Kind::kWrite);
  trusted::Statement write = statement(context, Kind::kWrite);
  write.slot = slot;
  write.offset = offset;
  return send(bytes, write);
}

void AttestedTransport::check_kind(Context context, Kind kind) const {
  if (kinds_[context] != kind) [[unlikely]]
    throw Error(ErrorCode::kInvalidArgument,
                "context " + std::to_string(context) + " is that of a memory's writes",
                "Send messages in another one.");
}

SendResult AttestedTransport::send(std::span<const std::byte> message,
                                   const trusted::Statement& statement) {
  const Context context = statement.stream;
  auto& out = records_.of(context);
  if (out.begun()) [[unlikely]] {
    // First, because it tells that leat-attestd does not serve any more.
    look_for_answer();
    check_same(message, statement, out);
    return push(context);
  }
  if (message.size() > max_message_bytes()) refuse_too_large(message.size(), max_message_bytes());
  if (asking_) {
    // That there is room is all that was to be known: other contexts may use it until the answer.
    return records_.finds_room(message.size(), context) ? send_by_asking(message, statement)
                                                        : SendResult::kNoRoom;
  }
  // What is attested is the caller's message, not what stands in memory that the peer can write.
  return records_.send(message.size(), statement, context, [&](std::span<std::byte> record) {
    Proof proof;
    const Verdict verdict = session_.kernel().attest(statement, message, proof);
    if (verdict != Verdict::kOk) [[unlikely]]
      refuse_to_attest(verdict);
    trusted::write_record(proof, message, record);
  });
}

// Once the question is asked, the message has its place in the order.
SendResult AttestedTransport::send_by_asking(std::span<const std::byte> message,
                                             const trusted::Statement& statement) {
  if (!settle_asked()) return SendResult::kNoRoom;
  const Context context = statement.stream;
  hold(message, statement);
  return ask_to_attest(context, 1) ? push(context) : SendResult::kNoRoom;
}

// Copies the payload of what will be a record.
void AttestedTransport::hold(std::span<const std::byte> message,
                             const trusted::Statement& statement) {
  auto& out = records_.hold(message.size(), statement, statement.stream);
  if (!message.empty())
    std::memcpy(out.record.data() + trusted::kHeaderBytes, message.data(), message.size());
}

SendResult AttestedTransport::push(Context context) {
  look_for_answer();
  return records_.push(context);
}

void AttestedTransport::check_same(std::span<const std::byte> message,
                                   const trusted::Statement& statement, Records::Outgoing& out) {
  const auto before = trusted::payload_of(out.record);
  // A large one in pieces is asked for often: its size must do, as without attestation, unless its
  // caller has given it up since.
  const bool by_size = message.size() > KeptBuffer::kKeptBytes && !out.abandoned;
  if (out.about.kind == statement.kind && out.about.slot == statement.slot &&
      out.about.offset == statement.offset && message.size() == before.size() &&
      (by_size || std::ranges::equal(message, before))) {
    out.abandoned = false;
    return;
  }
  refuse_another_message("attested");
}

// Returns false, and has asked nothing, if that would block.
bool AttestedTransport::ask_to_attest(Context first, std::size_t count) {
  const auto questions = std::span(asking_->questions).first(count);
  for (Context i = 0; i < count; ++i) {
    const auto& out = records_.of(first + i);
    questions[i] = {.asks = trusted::Question::Asks::kAttest,
                    .statement = out.about,
                    .bytes = trusted::payload_of(out.record)};
  }
  asking_->first = first;
  asking_->count = asking_->open.begin(questions);
  for (Context i = 0; i < asking_->count; ++i) records_.of(first + i).stage = Records::Stage::kHeld;
  return asking_->count != 0;
}

// All in one request: those of `first` and of the contexts after it that have begun nothing.
bool AttestedTransport::ask_to_attest_ends(Context first) {
  if (!settle_asked()) return false;
  std::size_t count = 0;
  for (Context each = first; each < kContextCount && !records_.of(each).begun(); ++each, ++count)
    hold({}, statement(each, Kind::kEnd));
  return ask_to_attest(first, count);
}

// Returns false while leat-attestd has not answered. A refusal is told at each call.
bool AttestedTransport::settle_asked() {
  if (asking_->count == 0) return true;
  if (!asking_->open.try_finish()) return false;
  const auto questions = std::span(asking_->questions).first(asking_->count);
  for (const trusted::Question& question : questions)
    if (question.verdict != Verdict::kOk) refuse_to_attest(question.verdict);
  for (Context i = 0; i < questions.size(); ++i) {
    auto& out = records_.of(asking_->first + i);
    trusted::write_record(questions[i].proof, trusted::payload_of(out.record), out.record);
    out.stage = Records::Stage::kRecord;
  }
  asking_->count = 0;
  return true;
}

// For calls that wait for something else: an answer that lies there announces nothing more.
void AttestedTransport::look_for_answer() {
  if (asking_) static_cast<void>(settle_asked());
}

std::span<std::byte> AttestedTransport::try_reserve(std::size_t bytes, Context context) {
  check_kind(context, Kind::kSend);
  look_for_answer();
  return records_.try_reserve(bytes, context);
}

SendResult AttestedTransport::try_commit(std::size_t bytes) {
  return records_.try_commit(bytes, [&](std::span<const std::byte> message, Context context) {
    return send(message, statement(context, Kind::kSend));
  });
}

void AttestedTransport::abandon(Context context) noexcept { records_.abandon(context); }

bool AttestedTransport::try_end() {
  look_for_answer();
  return records_.try_end(
      [](const trusted::Statement& statement) { return statement.kind == Kind::kEnd; },
      [&](Context context) {
        return asking_ ? ask_to_attest_ends(context) && sent(push(context))
                       : sent(send({}, statement(context, Kind::kEnd)));
      });
}

bool AttestedTransport::try_flush() {
  look_for_answer();
  return inner_->try_flush();
}

}  // namespace leat::detail
