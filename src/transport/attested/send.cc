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

void AttestedTransport::Outgoing::hold(std::span<const std::byte> message,
                                       const trusted::Statement& its_statement) {
  record = buffer.take(message.size() + trusted::kRecordOverheadBytes);
  statement = its_statement;
  if (!message.empty())
    std::memcpy(record.data() + trusted::kHeaderBytes, message.data(), message.size());
}

void AttestedTransport::Outgoing::attested(const Proof& proof) {
  trusted::write_record(proof, trusted::payload_of(record), record);
  stage = Stage::kAttested;
}

void AttestedTransport::Outgoing::forget() noexcept {
  stage = Stage::kNone;
  abandoned = false;
  record = {};
  buffer.shrink();
}

SendResult AttestedTransport::try_send(std::span<const std::byte> message, Context context) {
  reservation_.check_send(context);
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
  Outgoing& out = outgoing_[context];
  if (out.begun()) [[unlikely]] {
    // First, because it tells that leat-attestd does not serve any more.
    look_for_answer();
    check_same(message, statement, out);
    return push(context) ? SendResult::kSent : SendResult::kUnderWay;
  }
  if (message.size() > max_message_bytes()) refuse_too_large(message.size(), max_message_bytes());
  const std::size_t record_bytes = message.size() + trusted::kRecordOverheadBytes;
  const bool in_place = !in_place_ && record_bytes <= inner_->max_in_place_bytes(context);
  std::span<std::byte> place;
  if (in_place) {
    place = inner_->try_reserve(record_bytes, context);
    if (place.data() == nullptr) return SendResult::kNoRoom;
  }
  if (asking_) {
    // That there is room is all that was to be known: other contexts may use it until the answer.
    if (in_place) inner_->abandon(context);
    return send_by_asking(message, statement);
  }

  Proof proof;
  const Verdict verdict = session_.kernel().attest(statement, message, proof);
  if (verdict != Verdict::kOk) [[unlikely]] {
    if (in_place) inner_->abandon(context);
    refuse_to_attest(verdict);
  }
  // What is attested is the caller's message, not what stands in memory that the peer can write.
  if (in_place) {
    trusted::write_record(proof, message, place);
    if (commit_place(place, statement)) [[likely]]
      return SendResult::kSent;
    if (out.begun()) return SendResult::kUnderWay;
  }
  out.hold(message, statement);
  out.attested(proof);
  return !in_place && push(context) ? SendResult::kSent : SendResult::kUnderWay;
}

// Once the question is asked, the message has its place in the order.
SendResult AttestedTransport::send_by_asking(std::span<const std::byte> message,
                                             const trusted::Statement& statement) {
  if (!settle_asked()) return SendResult::kNoRoom;
  const Context context = statement.stream;
  outgoing_[context].hold(message, statement);
  if (!ask_to_attest(context, 1)) return SendResult::kNoRoom;
  return push(context) ? SendResult::kSent : SendResult::kUnderWay;
}

// Gives the place back when it returns false or throws, unless a part of the record has left it.
bool AttestedTransport::commit_place(std::span<std::byte> record,
                                     const trusted::Statement& statement) try {
  const SendResult result = inner_->try_commit(record.size());
  if (sent(result)) [[likely]]
    return true;
  if (result == SendResult::kUnderWay) {
    Outgoing& out = outgoing_[statement.stream];
    out.stage = Stage::kInPlace;
    out.statement = statement;
    out.record = record;
    in_place_ = true;
  } else {
    inner_->abandon(statement.stream);
  }
  return false;
} catch (...) {
  inner_->abandon(statement.stream);
  throw;
}

// Goes on with what the context has begun. Returns true once that is sent.
bool AttestedTransport::push(Context context) {
  Outgoing& out = outgoing_[context];
  look_for_answer();
  if (out.stage == Stage::kAsked) return false;
  const bool in_place = out.stage == Stage::kInPlace;
  const SendResult result =
      in_place ? inner_->try_commit(out.record.size()) : inner_->try_send(out.record, context);
  if (!sent(result)) return false;
  if (in_place) in_place_ = false;
  out.forget();
  return true;
}

void AttestedTransport::check_same(std::span<const std::byte> message,
                                   const trusted::Statement& statement, Outgoing& out) {
  const auto before = trusted::payload_of(out.record);
  // A large one in pieces is asked for often: its size must do, as without attestation, unless its
  // caller has given it up since.
  const bool by_size = message.size() > KeptBuffer::kKeptBytes && !out.abandoned;
  if (out.statement.kind == statement.kind && out.statement.slot == statement.slot &&
      out.statement.offset == statement.offset && message.size() == before.size() &&
      (by_size || std::ranges::equal(message, before))) {
    out.abandoned = false;
    return;
  }
  throw Error(ErrorCode::kInvalidArgument,
              "another message is to be sent first: it is attested, has its place in the order and "
              "cannot be taken back",
              "Go on with that message, or connect again.");
}

// Returns false, and has asked nothing, if that would block.
bool AttestedTransport::ask_to_attest(Context first, std::size_t count) {
  const auto questions = std::span(asking_->questions).first(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Outgoing& out = outgoing_[first + i];
    questions[i] = {.asks = trusted::Question::Asks::kAttest,
                    .statement = out.statement,
                    .bytes = trusted::payload_of(out.record)};
  }
  asking_->first = first;
  asking_->count = asking_->open.begin(questions);
  for (std::size_t i = 0; i < asking_->count; ++i) outgoing_[first + i].stage = Stage::kAsked;
  return asking_->count != 0;
}

// All in one request: those of `first` and of the contexts after it that have begun nothing.
bool AttestedTransport::ask_to_attest_ends(Context first) {
  if (!settle_asked()) return false;
  std::size_t count = 0;
  for (Context each = first; each < kContextCount && !outgoing_[each].begun(); ++each, ++count)
    outgoing_[each].hold({}, statement(each, Kind::kEnd));
  return ask_to_attest(first, count);
}

// Returns false while leat-attestd has not answered. A refusal is told at each call.
bool AttestedTransport::settle_asked() {
  if (asking_->count == 0) return true;
  if (!asking_->open.try_finish()) return false;
  const auto questions = std::span(asking_->questions).first(asking_->count);
  for (const trusted::Question& question : questions)
    if (question.verdict != Verdict::kOk) refuse_to_attest(question.verdict);
  for (std::size_t i = 0; i < questions.size(); ++i)
    outgoing_[asking_->first + i].attested(questions[i].proof);
  asking_->count = 0;
  return true;
}

// For calls that wait for something else: an answer that lies there announces nothing more.
void AttestedTransport::look_for_answer() {
  if (asking_) static_cast<void>(settle_asked());
}

std::span<std::byte> AttestedTransport::try_reserve(std::size_t bytes, Context context) {
  if (bytes > max_in_place_bytes(context))
    refuse_reservation(bytes, max_in_place_bytes(context), "Use send().");
  check_kind(context, Kind::kSend);
  const Outgoing& out = outgoing_[context];
  reservation_.check_reserve(
      context, out.begun() && out.record.size() > inner_->max_in_place_bytes(context));
  // A commit that found no room, abandoned since: it has its place in the order.
  if (out.begun() && !push(context)) return {};
  // Our own memory: the peer must not change what is attested.
  reservation_.open(reservation_buffer_.take(std::max<std::size_t>(bytes, 1)).first(bytes),
                    context);
  return reservation_.memory();
}

SendResult AttestedTransport::try_commit(std::size_t bytes) {
  const SendResult result =
      send(reservation_.check_commit(bytes), statement(reservation_.context(), Kind::kSend));
  if (sent(result)) reservation_.close();
  return result;
}

void AttestedTransport::abandon(Context context) noexcept {
  reservation_.abandon(context);
  outgoing_[context].abandoned = outgoing_[context].begun();
}

// An end that anyone can send proves nothing: each stream ends with a record of its own.
bool AttestedTransport::try_end() {
  look_for_answer();
  for (; ends_sent_ < kContextCount; ++ends_sent_) {
    const Context context = ends_sent_;
    const Outgoing& out = outgoing_[context];
    if (out.begun()) {
      const bool is_end = out.statement.kind == Kind::kEnd;
      if (!push(context)) return false;
      if (is_end) continue;
    }
    const bool ends = asking_ ? ask_to_attest_ends(context) && push(context)
                              : sent(send({}, statement(context, Kind::kEnd)));
    if (!ends) return false;
  }
  return inner_->try_end();
}

bool AttestedTransport::try_flush() {
  look_for_answer();
  return inner_->try_flush();
}

}  // namespace leat::detail
