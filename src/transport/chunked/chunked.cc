// The way of transfers to the peer. receive.cc has their way from the peer; setup.cc makes and
// starts the transport.
#include "transport/chunked/chunked.h"

#include <algorithm>
#include <cstring>

#include "transport/parts/pieces.h"
#include "transport/parts/refusals.h"
#include "transport/parts/requests.h"

namespace leat::detail {
namespace {

constexpr std::uint64_t kTransfersPerErrorPoll = 64;

}  // namespace

std::size_t ChunkedTransport::part_bytes(Context context) const {
  const std::size_t region = peer_layout_.shape(context).part_bytes();
  return options_.mode == ChunkMode::kHeader ? std::min(region, options_.chunk_bytes) : region;
}

// Where requests run as they are posted, a whole part is posted at once; elsewhere no more than a
// chunk.
void ChunkedTransport::set_facts() {
  set_in_place(part_bytes(0), part_bytes(1));
  const std::size_t most = staging_ == nullptr ? limits_.max_request_bytes
                                               : std::min(kLeastChunkBytes, options_.chunk_bytes);
  for (std::size_t& bytes : facts_.max_at_once_bytes) bytes = std::min(bytes, most);
  facts_.send_event_fd = resumption_.event_fd(Side::kSend);
  facts_.receive_event_fd = resumption_.event_fd(Side::kReceive);
  facts_.resuming = resumption_.resuming();
  if (facts_.resuming != nullptr) facts_.stream = StreamUse::kResuming;
}

SendResult ChunkedTransport::try_send(std::span<const std::byte> message, Context context) {
  if (message.size() > max_message_bytes()) refuse_too_large(message.size(), max_message_bytes());
  const auto mine = resumption_.turn(Side::kSend);
  if (!mine) return unsent(context);
  reservation_.check_send(context);
  return send({message}, context);
}

// As much as may be on its way now.
SendResult ChunkedTransport::send(const Source& source, Context context) {
  took_part_ = false;
  if (staging_ != nullptr) window_.looked(Clock::now());
  if (!look_at_sends()) return unsent(context);
  if (!take_back(context)) {
    no_room();
    return SendResult::kUnderWay;
  }
  Outgoing& out = flows_[context].transfer;
  if (!out.active) {
    out = {};
    out.total = source.bytes.size();
    if (options_.verify) out.digester.emplace();
    window_.begin(out.total, Clock::now());
  } else if (out.total != source.bytes.size()) {
    Pieces::refuse_another(out.total, source.bytes.size());
  }
  do {
    if (!send_part(source, context, out)) {
      no_room();
      return unsent(context);
    }
  } while (out.posted < out.total);
  out.active = false;
  ++flows_[context].transfers;
  window_.idle();
  return SendResult::kSent;
}

// Announces an abandoned transfer's open part, or one without bytes, with a header that tells the
// peer to drop it. False: would block.
bool ChunkedTransport::take_back(Context context) {
  Outgoing& out = flows_[context].transfer;
  if (!out.abandoned) return true;
  const std::size_t most = part_bytes(context);
  const std::size_t offset = std::size_t{out.sequence} * most;  // in the transfer
  const std::size_t length = out.part_open ? std::min(out.total - offset, most) : 0;
  if (!out.part_open && !find_place(context, length, out.place)) return false;
  if (!find_credit() || !post_chunk({}, context, out, 0, true, 0, length)) return false;
  if (!out.part_open) flows_[context].places.take(out.place);
  out = {};
  ++flows_[context].transfers;
  ++flows_[context].parts;
  credits_.add_sent();
  return true;
}

// The rest of the part that is being sent, from its last chunk to its first. False: would block.
bool ChunkedTransport::send_part(const Source& source, Context context, Outgoing& out) {
  const std::size_t most = part_bytes(context);
  const std::size_t offset = std::size_t{out.sequence} * most;  // in the transfer
  const std::size_t length = std::min(out.total - offset, most);
  do {
    const std::size_t left = out.part_open ? out.part_left : length;
    // Where requests run as they are posted there is no path: the fewer and the longer the better.
    std::size_t bytes = std::min(left, limits_.max_request_bytes);
    if (staging_ != nullptr) {
      // With headers a part is one chunk, but a long one must not be what opens the path.
      const bool divisible = out.total > max_at_once_bytes(context) &&
                             (options_.mode == ChunkMode::kInPlace || window_.opens_path());
      const std::size_t allowed =
          window_.allowance(left + sizeof(ChunkHeader), divisible, Clock::now());
      if (allowed == 0) return false;
      bytes = std::min(left, allowed);
    }
    const bool announces = bytes == left;
    if (!out.part_open && !find_place(context, length, out.place)) return false;
    if (announces && !find_credit()) return false;
    if (out.digester) {
      // In the transfer's order, as much as goes; with the first chunk of the last part all of it.
      const bool last = announces && offset + length == out.total;
      const std::size_t until = last ? out.total : out.posted + bytes;
      out.digester->add(source.bytes.subspan(out.digester->bytes(),
                                             until - std::min(until, out.digester->bytes())));
    }
    if (!post_chunk(source, context, out, bytes, announces, offset, length)) return false;
    chunks_.add(1);
    if (!out.part_open) flows_[context].places.take(out.place);
    out.part_open = !announces;
    out.part_left = left - bytes;
    out.posted += bytes;
    out.active = out.posted < out.total;
    took_part_ = out.active;
  } while (out.part_open);
  ++out.sequence;
  ++flows_[context].parts;
  credits_.add_sent();
  if (credits_.sent() % kTransfersPerErrorPoll == 0) static_cast<void>(look_at_sends());
  return true;
}

ChunkHeader ChunkedTransport::header_of(Context context, const Outgoing& out,
                                        std::size_t length) const {
  ChunkHeader header;
  header.transfer = flows_[context].transfers;
  header.sequence = out.sequence;
  header.count = out.abandoned
                     ? ChunkHeader::kTakenBack
                     : static_cast<std::uint32_t>(parts_of(out.total, part_bytes(context)));
  header.length = length;
  header.total = out.total;
  if (out.digester && header.sequence + 1 == header.count) header.digest = out.digester->digest();
  header.check = check_of(header);
  return header;
}

// The chunk of `bytes` that ends where the part's unposted rest ends.
bool ChunkedTransport::post_chunk(const Source& source, Context context, const Outgoing& out,
                                  std::size_t bytes, bool announces, std::size_t part_offset,
                                  std::size_t length) {
  const std::size_t left = out.part_open ? out.part_left : length;
  const std::byte* from = bytes == 0 ? nullptr : source.bytes.data() + part_offset + left - bytes;
  const std::uint64_t unit = peer_layout_.first_unit(context) + out.place.unit;
  ChunkWork work;
  work.context = context;
  work.part = flows_[context].parts;
  work.announces = announces;
  work.offset = unit * kPlaceUnitBytes;
  if (announces) {
    work.header = header_of(context, out, length);
    work.immediate = encode({context, static_cast<std::uint32_t>(unit)});
  } else {
    work.offset += sizeof(ChunkHeader) + left - bytes;
  }
  const std::size_t head = announces ? sizeof(ChunkHeader) : 0;
  work.bytes = head + bytes;
  if (staging_ == nullptr) {
    SendRequest chunk;
    chunk.signaled = false;
    chunk.inlined = true;
    chunk.local = const_cast<std::byte*>(from);
    chunk.bytes = bytes;
    chunk.remote_address = peer_region_.address + work.offset + head;
    chunk.remote_key = peer_region_.key;
    SendRequest announcement = chunk;
    announcement.opcode = Opcode::kWriteWithImmediate;
    announcement.local = &work.header;
    announcement.bytes = head;
    announcement.remote_address = peer_region_.address + work.offset;
    announcement.immediate = work.immediate;
    return post_at_once(chunk, announcement, announces);
  }
  if (source.registered && bytes != 0) {
    work.local = const_cast<std::byte*>(from) - head;
    work.local_key = source.local_key;
    if (announces) std::memcpy(work.local, &work.header, head);
    return post_work(work);
  }
  RingSender::Place place{};
  work.local = stage(work.bytes, place);
  if (work.local == nullptr) return false;
  work.local_key = staging_->local_key();
  if (announces) std::memcpy(work.local, &work.header, head);
  if (bytes != 0) std::memcpy(work.local + head, from, bytes);
  work.kept = place.end;
  if (!post_work(work)) return false;
  stage_.take(place);
  return true;
}

// On a device that runs requests as they are posted: straight from the caller's memory, and done.
bool ChunkedTransport::post_at_once(const SendRequest& chunk, const SendRequest& announcement,
                                    bool announces) {
  QueuePair& queue_pair = *resumption_.queue_pair();
  if (!announces) return queue_pair.post_send({&chunk, 1}) == 1;
  if (chunk.bytes == 0) return queue_pair.post_send({&announcement, 1}) == 1;
  const std::array<SendRequest, 2> both{chunk, announcement};
  // A chunk whose announcement finds no room is written once more: nobody has looked at it.
  return queue_pair.post_send(both) == both.size();
}

bool ChunkedTransport::post_work(ChunkWork& work) {
  if (!post_request(work)) return false;
  works_.posted(work);
  return true;
}

// Posts it, new or again.
bool ChunkedTransport::post_request(ChunkWork& work) {
  SendRequest request;
  request.opcode = work.announces ? Opcode::kWriteWithImmediate : Opcode::kWrite;
  request.local = work.local;
  request.local_key = work.local_key;
  request.bytes = work.bytes;
  request.inlined = work.bytes == 0;
  request.remote_address = peer_region_.address + work.offset;
  request.remote_key = peer_region_.key;
  request.immediate = work.immediate;
  // Before posting, which may take long: a round trip seen too short would be believed for long.
  const Clock::time_point now = Clock::now();
  if (resumption_.queue_pair()->post_send({&request, 1}) == 0) return false;
  work.flight = window_.posted(work.bytes, now);
  return true;
}

// Registered memory for that many bytes; null: all of it is in flight.
std::byte* ChunkedTransport::stage(std::size_t bytes, RingSender::Place& place) {
  const auto found = stage_.place(units_of(bytes));
  if (!found) return nullptr;
  place = *found;
  return staging_->memory().data() + place.unit * kPlaceUnitBytes;
}

bool ChunkedTransport::find_place(Context context, std::size_t bytes, PoolSender::Place& place) {
  const auto found = credits_.find_place(flows_[context].places, context, bytes,
                                         [&](const char* why) { refuse_credit(why); });
  if (!found) return false;
  place = *found;
  return true;
}

// Whether the peer has a receive for one more announcement.
bool ChunkedTransport::find_credit() {
  if (credits_.has_receive()) return true;
  const std::uint64_t taken = credits_.receives_word([&](const char* why) { refuse_credit(why); });
  if (taken < credits_.taken()) return false;  // what the peer said while resuming is newer
  if (!credits_.take(taken) || (staging_ != nullptr && !works_.taken(taken)))
    refuse_credit("took more than was sent");
  return credits_.has_receive();
}

bool ChunkedTransport::no_room() {
  credit_waits_.add(1);
  if (look_at_sends()) resumption_.heed_peer(Side::kSend);
  return false;
}

// --- reservations: memory of ours, registered, from which chunks go without a copy

std::span<std::byte> ChunkedTransport::try_reserve(std::size_t bytes, Context context) {
  if (bytes > max_in_place_bytes(context))
    refuse_reservation(bytes, max_in_place_bytes(context),
                       "Raise chunked_region_bytes on the receiving side, or use send().");
  const auto mine = resumption_.turn(Side::kSend);
  if (!mine) return {};
  if (!take_back(context)) {
    no_room();
    return {};
  }
  reservation_.check_reserve(context, flows_[context].transfer.active);
  if (!look_at_sends()) return {};
  if (reserved_in_flight_ && !works_.idle()) {
    no_room();
    return {};
  }
  reserved_in_flight_ = false;
  const std::size_t wanted = sizeof(ChunkHeader) + bytes;
  if (reserved_memory_ == nullptr || reserved_memory_->memory().size() < wanted) {
    reserved_memory_.reset();
    reserved_memory_ = device_->allocate(wanted, kLocalOnly);
  }
  reservation_.open(reserved_memory_->memory().subspan(sizeof(ChunkHeader), bytes), context);
  return reservation_.memory();
}

SendResult ChunkedTransport::try_commit(std::size_t bytes) {
  const auto mine = resumption_.turn(Side::kSend);
  if (!mine) return unsent(reservation_.context());
  const auto memory = reservation_.check_commit(bytes);
  // A small one is copied, so that the next reservation need not wait until it has arrived.
  const bool registered = staging_ != nullptr && bytes > kLeastChunkBytes;
  reserved_in_flight_ |= registered;
  const SendResult result = send(
      {memory, registered ? reserved_memory_->local_key() : 0, registered}, reservation_.context());
  if (sent(result)) reservation_.close();
  return result;
}

// A commit too may be under way.
void ChunkedTransport::abandon(Context context) noexcept {
  reservation_.abandon(context);
  flows_[context].transfer.abandoned = flows_[context].transfer.active;
}

// --- the end

bool ChunkedTransport::try_end() {
  if (end_sent_) return true;
  const auto mine = resumption_.turn(Side::kSend);
  if (!mine || !look_at_sends()) return false;
  if (!find_credit()) return no_room();
  ChunkWork work;
  work.announces = true;
  work.immediate = encode({0, kEndPlace});
  work.part = flows_[0].parts;
  if (staging_ != nullptr) {
    end_sent_ = post_work(work);
  } else {
    const SendRequest request = bare_immediate(work.immediate, peer_region_);
    end_sent_ = resumption_.queue_pair()->post_send({&request, 1}) == 1;
  }
  if (!end_sent_) return no_room();
  credits_.add_sent();
  ++flows_[0].parts;
  return true;
}

bool ChunkedTransport::try_flush() {
  const auto mine = resumption_.turn(Side::kSend);
  return mine && look_at_sends() && works_.idle();
}

// --- completions

// False: the queue pair has failed and is re-established.
bool ChunkedTransport::look_at_sends() {
  std::array<Completion, 16> completions;
  while (send_error_.empty()) {
    const std::size_t count = resumption_.queue_pair()->poll_sends(completions);
    for (const Completion& completion : std::span(completions).first(count)) {
      if (completion.status != CompletionStatus::kSuccess) {
        const std::string why = std::string("sending failed: ") + to_string(completion.status);
        if (resumption_.break_off(why)) return false;
        fail_sending(ErrorCode::kPeerDied, why);
      }
      take_completion();
    }
    if (count < completions.size()) break;
  }
  send_error_.check();
  return true;
}

void ChunkedTransport::take_completion() {
  ChunkWork work;
  if (!works_.confirmed(work)) return;
  window_.confirmed(work.flight, Clock::now());
  if (work.kept != 0) static_cast<void>(stage_.take_back(work.kept));  // it was taken
}

void ChunkedTransport::refuse_credit(const char* why) {
  fail_sending(ErrorCode::kProtocol, std::string("the peer ") + why);
}

void ChunkedTransport::fail_sending(ErrorCode code, const std::string& what) {
  send_error_.fail(code, what + " (" + resumption_.describe() + ")");
}

// --- both

void ChunkedTransport::add_stats(Stats& stats) const {
  stats.chunks += chunks_.get();
  stats.credit_waits += credit_waits_.get();
  stats.credit_returns += returns_.writes();
  stats.reassembled_messages += reassembled_.get();
  resumption_.add_stats(stats);
}

}  // namespace leat::detail
