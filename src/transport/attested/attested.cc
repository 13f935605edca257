#include "transport/attested/attested.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "leat/error.h"
#include "transport/parts/refusals.h"

namespace leat::detail {
namespace {

using trusted::kHeaderBytes;
using trusted::Kind;
using trusted::kRecordOverheadBytes;
using trusted::Proof;
using trusted::RecordHeader;
using trusted::Verdict;

// Buffers larger than that are given back to the system after their use.
constexpr std::size_t kKeptBytes = std::size_t{1} << 20;
constexpr std::size_t kLeastBufferBytes = 4096;

[[noreturn]] void refuse_out_of_memory() {
  throw Error(ErrorCode::kResource, "out of memory for a message that has arrived, which is lost",
              "Lower max_message_bytes, and connect again.");
}

std::unique_ptr<trusted::detail::ChannelHome> home_of(const Settings& settings) {
  if (settings.attest_kernel == kInProcess)
    return trusted::detail::make_local_home(settings.attest_key_file, settings.attest_algorithm);
  if (!settings.attest_key_file.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "attest_key_file is set, and attest_kernel names a leat-attestd",
                "Set one of them: a key that this process can read is not isolated.");
  return trusted::detail::make_isolated_home(settings.attest_kernel,
                                             static_cast<std::uint32_t>(settings.attest_session),
                                             settings.attest_algorithm, settings.spin);
}

}  // namespace

std::unique_ptr<Transport> AttestedTransport::make(MakeTransport* inner, Endpoint end,
                                                   const Settings& settings) {
  trusted::detail::ChannelSession session(home_of(settings), settings.attest_algorithm, end.active);
  // Records are longer than their messages.
  Settings of_records = settings;
  of_records.max_message_bytes =
      std::min(settings.max_message_bytes, trusted::kMaxPayloadBytes) + kRecordOverheadBytes;
  return std::make_unique<AttestedTransport>(inner(std::move(end), of_records), std::move(session));
}

std::span<std::byte> AttestedTransport::Buffer::take(std::size_t wanted) {
  if (bytes < wanted) {
    const std::size_t rounded = std::max(kLeastBufferBytes, std::bit_ceil(wanted));
    memory = std::make_unique_for_overwrite<std::byte[]>(rounded);
    bytes = rounded;
  }
  return {memory.get(), wanted};
}

void AttestedTransport::Buffer::shrink() noexcept {
  if (bytes <= kKeptBytes) return;
  memory.reset();
  bytes = 0;
}

AttestedTransport::AttestedTransport(std::unique_ptr<Transport> inner,
                                     trusted::detail::ChannelSession session)
    : inner_(std::move(inner)), session_(std::move(session)) {
  kinds_.fill(Kind::kSend);
}

MemoryRegion& AttestedTransport::keep(std::unique_ptr<MemoryRegion> region) {
  return *kept_.emplace_back(std::move(region));
}

std::vector<std::byte> AttestedTransport::setup() const {
  std::vector<std::byte> bytes(session_.offer().begin(), session_.offer().end());
  const std::vector<std::byte> inner = inner_->setup();
  bytes.insert(bytes.end(), inner.begin(), inner.end());
  return bytes;
}

void AttestedTransport::start(std::span<const std::byte> peer_setup) {
  const std::size_t offered = std::min(peer_setup.size(), session_.offer().size());
  session_.begin(peer_setup.first(offered));
  inner_->start(peer_setup.subspan(offered));
  if (inner_->max_message_bytes() < kRecordOverheadBytes)
    throw Error(ErrorCode::kProtocol, "the peer takes no message as long as an empty record");
  facts_ = inner_->facts();
  const auto shorten = [](std::size_t& bytes) { bytes -= kRecordOverheadBytes; };
  shorten(facts_.max_message_bytes);
  facts_.max_message_bytes = std::min(facts_.max_message_bytes, session_.max_payload_bytes());
  std::ranges::for_each(facts_.max_in_place_bytes, shorten);
  std::ranges::for_each(facts_.max_at_once_bytes, shorten);
  facts_.reserves_room = false;
  facts_.takes_back = false;
  facts_.arrays = nullptr;
  facts_.records = this;
}

// --- send side

SendResult AttestedTransport::try_send(std::span<const std::byte> message, Context context) {
  if (reserved_.memory.data() != nullptr && reserved_.context == context) [[unlikely]]
    refuse_while_reserved(context);
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
  Waiting& waiting = waiting_[context];
  if (!waiting.record.empty()) [[unlikely]] {
    check_same(message, statement, waiting);
    return send_waiting(context) ? SendResult::kSent : SendResult::kUnderWay;
  }
  if (message.size() > max_message_bytes()) refuse_too_large(message.size(), max_message_bytes());
  const std::size_t record_bytes = message.size() + kRecordOverheadBytes;
  const bool in_place = !in_place_ && record_bytes <= inner_->max_in_place_bytes(context);
  std::span<std::byte> place;
  if (in_place) {
    place = inner_->try_reserve(record_bytes, context);
    if (place.data() == nullptr) return SendResult::kNoRoom;
  }

  Proof proof;
  const Verdict verdict = session_.kernel().attest(statement, message, proof);
  if (verdict != Verdict::kOk) [[unlikely]] {
    if (in_place) inner_->abandon(context);
    throw Error(ErrorCode::kUnavailable,
                "cannot attest a message: " + std::string(to_string(verdict)), "Connect again.");
  }
  // What is attested is the caller's message, not what stands in memory that the peer can write.
  if (in_place) {
    trusted::write_record(proof, message, place);
    if (commit_place(place, context)) [[likely]]
      return SendResult::kSent;
    if (in_place_) return SendResult::kUnderWay;
  }
  const auto record = waiting.buffer.take(record_bytes);
  trusted::write_record(proof, message, record);
  waiting.record = record;
  return !in_place && send_waiting(context) ? SendResult::kSent : SendResult::kUnderWay;
}

// Gives the place back when it returns false or throws, unless a part of the record has left it.
bool AttestedTransport::commit_place(std::span<const std::byte> record, Context context) try {
  const SendResult result = inner_->try_commit(record.size());
  if (sent(result)) [[likely]]
    return true;
  if (result == SendResult::kUnderWay) {
    waiting_[context].record = record;
    in_place_ = context;
  } else {
    inner_->abandon(context);
  }
  return false;
} catch (...) {
  inner_->abandon(context);
  throw;
}

bool AttestedTransport::send_waiting(Context context) {
  Waiting& waiting = waiting_[context];
  const bool in_place = in_place_ == context;
  const SendResult result = in_place ? inner_->try_commit(waiting.record.size())
                                     : inner_->try_send(waiting.record, context);
  if (!sent(result)) return false;
  if (in_place) in_place_.reset();
  waiting.record = {};
  waiting.abandoned = false;
  waiting.buffer.shrink();
  return true;
}

void AttestedTransport::check_same(std::span<const std::byte> message,
                                   const trusted::Statement& statement, Waiting& waiting) {
  const auto before = trusted::payload_of(waiting.record);
  const auto header = trusted::read_header(waiting.record);
  // A large one in pieces is asked for often: its size must do, as without attestation, unless its
  // caller has given it up since.
  const bool by_size = message.size() > kKeptBytes && !waiting.abandoned;
  if (header->slot == statement.slot && header->offset == statement.offset &&
      message.size() == before.size() && (by_size || std::ranges::equal(message, before))) {
    waiting.abandoned = false;
    return;
  }
  throw Error(ErrorCode::kInvalidArgument,
              "another message is to be sent first: it is attested, has its place in the order and "
              "cannot be taken back",
              "Go on with that message, or connect again.");
}

std::span<std::byte> AttestedTransport::try_reserve(std::size_t bytes, Context context) {
  if (bytes > max_in_place_bytes(context))
    refuse_reservation(bytes, max_in_place_bytes(context), "Use send().");
  check_kind(context, Kind::kSend);
  const std::size_t waiting = waiting_[context].record.size();
  if (reserved_.memory.data() != nullptr || waiting > inner_->max_in_place_bytes(context))
    refuse_while_unfinished(context);
  // A commit that found no room, abandoned since: it has its place in the order.
  if (waiting != 0 && !send_waiting(context)) return {};
  // Our own memory: the peer must not change what is attested.
  reserved_ = {reservation_buffer_.take(std::max<std::size_t>(bytes, 1)).first(bytes), context};
  return reserved_.memory;
}

SendResult AttestedTransport::try_commit(std::size_t bytes) {
  if (reserved_.memory.data() == nullptr || bytes > reserved_.memory.size()) refuse_commit(bytes);
  const SendResult result =
      send(reserved_.memory.first(bytes), statement(reserved_.context, Kind::kSend));
  if (sent(result)) reserved_ = {};
  return result;
}

void AttestedTransport::abandon(Context context) noexcept {
  if (reserved_.context == context) reserved_ = {};
  waiting_[context].abandoned = !waiting_[context].record.empty();
}

// An end that anyone can send proves nothing: each stream ends with a record of its own.
bool AttestedTransport::try_end() {
  for (; ends_sent_ < kContextCount; ++ends_sent_) {
    const Context context = ends_sent_;
    if (!waiting_[context].record.empty()) {
      const bool is_end = trusted::read_header(waiting_[context].record)->kind == Kind::kEnd;
      if (!send_waiting(context)) return false;
      if (is_end) continue;
    }
    if (!sent(send({}, statement(context, Kind::kEnd)))) return false;
  }
  return inner_->try_end();
}

// --- receive side

ReceiveResult AttestedTransport::try_receive(Context context, Delivery& delivery) {
  for (;;) {
    const std::uint64_t ticket = free_ticket();
    Delivery outer;
    const ReceiveResult result = inner_->try_receive(context, outer);
    if (result == ReceiveResult::kNothing) return result;
    if (result == ReceiveResult::kEnd) {
      if (ended_[context]) return result;
      throw Error(ErrorCode::kAuthentication,
                  "the end of context " + std::to_string(context) +
                      " is not attested: messages are missing",
                  "Someone between the two sides has changed or removed messages.");
    }
    // First the copy, then the proof, and what is handed out is the copy.
    const auto record = copy_of(outer, ticket);
    RecordHeader header;
    if (!admit(record, context, header)) {
      buffers_[ticket].shrink();
      continue;
    }
    if (header.kind == Kind::kEnd) {
      ended_[context] = true;
      continue;
    }
    free_.pop_back();
    delivery.data = record.data() + kHeaderBytes;
    delivery.bytes = header.payload_bytes;
    delivery.ticket = ticket;
    delivery.context = context;
    delivery.must_release = true;
    return ReceiveResult::kMessage;
  }
}

// Of the buffer that the next message goes to, before that is taken off the inner transport.
std::uint64_t AttestedTransport::free_ticket() {
  if (out_of_memory_) [[unlikely]]
    refuse_out_of_memory();
  if (free_.empty()) {
    buffers_.reserve(buffers_.size() + 1);
    free_.reserve(buffers_.size() + 1);  // release() has room for every ticket
    free_.push_back(buffers_.size());
    buffers_.emplace_back();
  }
  return free_.back();
}

std::span<const std::byte> AttestedTransport::copy_of(Delivery& delivery,
                                                      std::uint64_t ticket) try {
  const auto record = buffers_[ticket].take(delivery.bytes);
  const std::byte* bytes = delivery.heap              ? delivery.heap.get()
                           : delivery.data != nullptr ? delivery.data
                                                      : delivery.small.data();
  if (delivery.bytes != 0) std::memcpy(record.data(), bytes, delivery.bytes);
  if (delivery.must_release) inner_->release(delivery);
  return record;
} catch (const std::bad_alloc&) {
  out_of_memory_ = true;
  refuse_out_of_memory();
}

bool AttestedTransport::admit(std::span<const std::byte> record, Context context,
                              RecordHeader& header) {
  const auto read = trusted::read_header(record);
  Verdict verdict = Verdict::kFormat;
  if (read) {
    header = *read;
    if (header.session != session_.id() || header.stream != context) {
      verdict = Verdict::kSession;
    } else if (header.kind != kinds_[context] && header.kind != Kind::kEnd) {
      verdict = Verdict::kKind;
    } else {
      verdict = session_.kernel().verify(record, header.kind);
    }
  }
  if (verdict == Verdict::kOk) [[likely]]
    return true;
  refuse(verdict, context);
  return false;
}

void AttestedTransport::refuse(Verdict why, Context context) {
  if (why == Verdict::kUnavailable)
    throw Error(ErrorCode::kUnavailable, "cannot verify a message: " + std::string(to_string(why)),
                "Connect again.");
  refused_.add(1);
  if (std::exchange(told_, true)) return;
  log(LogLevel::kWarn, describe() + ": refused a message of context " + std::to_string(context) +
                           ", which will be missing: " + std::string(to_string(why)));
}

void AttestedTransport::release(Delivery& delivery) noexcept {
  buffers_[delivery.ticket].shrink();
  free_.push_back(delivery.ticket);
}

// --- both

std::string AttestedTransport::describe() const {
  return "attested+" + inner_->describe() + ", " + session_.describe();
}

void AttestedTransport::add_stats(Stats& stats) const {
  inner_->add_stats(stats);
  stats.refused_records += refused_.get();
}

}  // namespace leat::detail
