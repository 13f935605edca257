#include "transport/slots/slot_transport.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/asymmetric_barrier.h"
#include "base/random.h"
#include "transport/parts/refusals.h"
#include "transport/slots/hot_path.h"

namespace leat::detail {
namespace {

// The setup blob, as it lies in memory.
static_assert(std::endian::native == std::endian::little);
struct Setup {
  std::uint64_t region_address;
  std::uint64_t region_bytes;
  std::uint64_t slot_bytes;
  std::uint64_t slot_count;
  std::uint64_t max_message_bytes;
  std::uint64_t header_key;
  std::uint32_t region_key;
  std::uint16_t header_bytes;
  std::uint8_t shares_memory;        // 1: if both say so
  std::uint8_t asymmetric_barriers;  // the same
  std::uint64_t mirror_address;      // of what will be written into the peer's slots
  std::uint64_t mirror_bytes;        // 0: the peer cannot read that
  std::uint32_t mirror_key;
  std::uint32_t unused;
};

std::uint64_t random_word() {
  std::array<std::uint8_t, sizeof(std::uint64_t)> bytes;
  fill_random(bytes);
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof word);
  return word;
}

}  // namespace

SlotOptions SlotOptions::of(const Settings& settings, const QueueDepths& depths) {
  return {.slot_bytes = settings.slot_bytes,
          .slot_count = static_cast<unsigned>(settings.slot_count),
          .confirm_threshold = static_cast<unsigned>(settings.batched_confirm_threshold),
          .max_message_bytes = settings.max_message_bytes,
          .depths = depths};
}

SlotTransport::SlotTransport(const char* name, std::unique_ptr<Device> device,
                             std::unique_ptr<QueuePair> queue_pair, const SlotOptions& options,
                             std::size_t head_bytes, std::size_t header_bytes, bool mirrors)
    : Transport(options.max_message_bytes),
      name_(name),
      device_(std::move(device)),
      queue_pair_(std::move(queue_pair)),
      limits_(device_->limits()),
      options_(options),
      head_bytes_(head_bytes),
      header_bytes_(header_bytes),
      mirrors_(mirrors),
      asymmetric_barriers_(register_for_heavy_barriers()),
      own_key_(random_word()),
      layout_(options.slot_bytes, options.slot_count, header_bytes),
      // So much of a short message is copied out, also of the last slot.
      region_(device_->allocate(head_bytes_ + layout_.bytes() + Delivery::kSmallBytes,
                                kRemoteRead | kRemoteWrite)),
      head_(region_->memory().data()) {
  region_->prepare(0, head_bytes_ + layout_.bytes());
  slot_memory_bytes_ = layout_.bytes();
  if (limits_.max_inline_bytes >= layout_.bytes() && (!mirrors_ || limits_.shares_memory)) return;
  staging_ = device_->allocate(layout_.bytes(), mirrors_ ? kRemoteRead : kLocalOnly);
  slot_memory_bytes_ += layout_.bytes();
}

std::vector<std::byte> SlotTransport::setup() const {
  const RemoteRegion region = region_->remote();
  const RemoteRegion mirror = mirrors_ && staging_ != nullptr ? staging_->remote() : RemoteRegion();
  const Setup setup{region.address,
                    region.bytes,
                    options_.slot_bytes,
                    options_.slot_count,
                    max_message_bytes(),
                    own_key_,
                    region.key,
                    static_cast<std::uint16_t>(header_bytes_),
                    limits_.shares_memory,
                    asymmetric_barriers_,
                    mirror.address,
                    mirror.bytes,
                    mirror.key,
                    0};
  const auto bytes = std::as_bytes(std::span(&setup, 1));
  return {bytes.begin(), bytes.end()};
}

void SlotTransport::start(std::span<const std::byte> peer_setup) {
  Setup peer;
  if (peer_setup.size() != sizeof peer) nonsense("a setup of the wrong size");
  std::memcpy(&peer, peer_setup.data(), sizeof peer);
  if (peer.slot_bytes < kMinSlotBytes || peer.slot_bytes > kMaxSlotBytes ||
      peer.slot_count < kMinSlots || peer.slot_count > kMaxSlots)
    nonsense("slots of impossible sizes");
  const bool shares_memory = limits_.shares_memory && peer.shares_memory == 1;
  asymmetric_barriers_ = asymmetric_barriers_ && peer.asymmetric_barriers == 1;
  // Both sides use the smaller of their sizes, so that slots and staging mirror each other.
  layout_ = SlotLayout(
      std::min<std::size_t>(options_.slot_bytes, peer.slot_bytes),
      static_cast<unsigned>(std::min<std::uint64_t>(options_.slot_count, peer.slot_count)),
      shares_memory ? 0 : header_bytes_);
  if (peer.header_bytes != header_bytes_ || peer.max_message_bytes == 0 ||
      peer.region_bytes < head_bytes_ + layout_.bytes() ||
      peer.region_address % alignof(std::uint64_t) != 0 ||
      peer.region_address > UINT64_MAX - peer.region_bytes)
    nonsense("a setup that contradicts itself");
  agree_with(peer.max_message_bytes);
  if (peer.mirror_bytes != 0 &&
      (peer.mirror_bytes < layout_.bytes() || peer.mirror_address % alignof(std::uint64_t) != 0 ||
       peer.mirror_address > UINT64_MAX - peer.mirror_bytes))
    nonsense("a setup that contradicts itself");
  peer_region_ = {peer.region_address, peer.region_bytes, peer.region_key};
  peer_mirror_ = {peer.mirror_address, peer.mirror_bytes, peer.mirror_key};
  std::byte* peer_memory = queue_pair_->peer_memory(peer_region_);
  direct_ = peer_memory != nullptr && (shares_memory || !mirrors_ || staging_ == nullptr);
  shares_memory_ = shares_memory;
  if (shares_memory) shared_head_ = peer_memory;
  if (!direct_ && staging_ == nullptr) {
    staging_ = device_->allocate(layout_.bytes(), kLocalOnly);  // the peer was not told of it
    slot_memory_bytes_ += layout_.bytes();
  }
  outgoing_ = direct_ ? peer_memory + head_bytes_ : staging_->memory().data();
  const auto in_place = [&](Context context) {
    return layout_.run_bytes(context, layout_.longest_run(context));
  };
  set_in_place(in_place(0), in_place(1));
  set_event_fds(*queue_pair_);
  facts_.reserves_room = true;
  started(peer.header_key);
}

// --- send side

bool SlotTransport::no_room() {
  credit_waits_.add(1);
  poll_send_errors();
  return false;
}

void SlotTransport::check_unreserved(Context context) const {
  if (reservation_.memory.data() != nullptr && reservation_.context == context) [[unlikely]]
    refuse_while_reserved(context);
}

// Of a large message, or that it is taken back.
bool SlotTransport::announce(std::uint64_t bytes, Context context) {
  const auto run = find_run(context, 1);
  if (!run) return no_room();
  return send_one(*this, std::as_bytes(std::span(&bytes, 1)), context, *run, SlotKind::kLargeStart);
}

SendResult SlotTransport::send_large(std::span<const std::byte> message, Context context) {
  Pieces& pieces = pieces_[context];
  const auto announce_one = [&](std::uint64_t bytes) { return announce(bytes, context); };
  took_part_ = false;
  if (!pieces.try_take_back(announce_one)) return SendResult::kUnderWay;
  if (!pieces.under_way()) {
    if (message.size() <= max_in_place_bytes(context)) return try_send(message, context);
    if (message.size() > max_message_bytes()) refuse_too_large(message.size(), max_message_bytes());
    check_unreserved(context);
  }
  // As much as there is a run for.
  return pieces.try_send(message, announce_one, [&](std::span<const std::byte> rest) {
    const std::size_t most = std::min(rest.size(), max_in_place_bytes(context));
    auto count = static_cast<unsigned>(layout_.slots_of(context, most));
    auto run = find_run(context, count);
    while (!run && count > 1) run = find_run(context, count /= 2);
    if (!run) {
      no_room();
      return std::size_t{0};
    }
    const auto piece = rest.first(std::min(most, layout_.run_bytes(context, count)));
    if (!send_one(*this, piece, context, *run, SlotKind::kMessage)) return std::size_t{0};
    took_part_ = true;
    return piece.size();
  });
}

std::span<std::byte> SlotTransport::try_reserve(std::size_t bytes, Context context) {
  if (bytes > max_in_place_bytes(context))
    refuse_reservation(bytes, max_in_place_bytes(context),
                       "Raise slot_bytes or slot_count on both sides, or use send().");
  const auto announce_one = [&](std::uint64_t total) { return announce(total, context); };
  if (!pieces_[context].try_take_back(announce_one)) return {};
  if (pieces_[context].under_way() || reservation_.memory.data() != nullptr)
    refuse_while_unfinished(context);
  const auto run = find_run(context, static_cast<unsigned>(layout_.slots_of(context, bytes)));
  if (!run) {
    no_room();
    return {};
  }
  reservation_ = {{outgoing(context, *run) + layout_.header_bytes(), bytes}, context, *run};
  return reservation_.memory;
}

SendResult SlotTransport::try_commit(std::size_t bytes) {
  if (reservation_.memory.data() == nullptr || bytes > reservation_.memory.size())
    refuse_commit(bytes);
  // Fewer bytes may need fewer slots; the rest of the run was never taken.
  const SlotRun run{reservation_.run.first,
                    static_cast<unsigned>(layout_.slots_of(reservation_.context, bytes))};
  if (!post(reservation_.context, run, SlotKind::kMessage, bytes)) {
    poll_send_errors();
    return SendResult::kNoRoom;
  }
  ++messages_sent_;
  reservation_ = {};
  return SendResult::kSent;
}

void SlotTransport::abandon(Context context) noexcept {
  if (reservation_.context == context) reservation_ = {};
  pieces_[context].abandon();
}

bool SlotTransport::try_end() {
  if (end_sent_) return true;
  if (!post_end()) {
    poll_send_errors();
    return false;
  }
  ++messages_sent_;
  return end_sent_ = true;
}

bool SlotTransport::try_flush() {
  const auto post = [&](const SendRequest& request) {
    return prepare_flush() && post_sends({&request, 1}) != 0;
  };
  return flush_.attempt(messages_sent_, peer_region_, post, [&] { poll_send_errors(); });
}

SendRequest SlotTransport::write_of(Context context, const SlotRun& run, std::size_t bytes) const {
  SendRequest request;
  request.opcode = Opcode::kWrite;
  request.signaled = false;
  request.inlined = direct_ || bytes <= limits_.max_inline_bytes;
  request.local = outgoing(context, run);
  request.bytes = bytes;
  request.local_key = request.inlined ? 0 : staging_->local_key();
  request.remote_address = peer_slots() + layout_.offset(context, run.first);
  request.remote_key = peer_region_.key;
  return request;
}

std::size_t SlotTransport::post_sends(std::span<const SendRequest> requests) {
  const std::size_t accepted = queue_pair_->post_send(requests);
  requests_.add(accepted);
  return accepted;
}

std::size_t SlotTransport::poll_sends(std::span<Completion> completions) {
  const std::size_t count = queue_pair_->poll_sends(completions);
  send_completions_.add(count);
  return count;
}

void SlotTransport::poll_send_errors() {
  const auto poll = [&](std::span<Completion> all) { return poll_sends(all); };
  look_at_sends(*queue_pair_, send_error_, poll, [&](std::uint64_t id) {
    if (id == Flush::kId) flush_.completed();
  });
}

void SlotTransport::fail_sending(const std::string& what) {
  send_error_.fail(ErrorCode::kProtocol, "the peer sent " + what + ", which leat never does (" +
                                             queue_pair_->describe() + ")");
}

// --- receive side

ReceiveResult SlotTransport::nothing_waits(Context context) {
  large_[context].check();
  if (ended(context)) {
    large_[context].drop();  // its sender has given it up
    return ReceiveResult::kEnd;
  }
  receive_error_.check();
  return ReceiveResult::kNothing;
}

void SlotTransport::check_whole(Context context) {
  large_[context].check();
  if (large_[context].active()) nonsense("other messages within a large one");
}

bool SlotTransport::add_piece(Context context, const SlotOrder::Entry& entry,
                              const std::byte* bytes, Delivery& delivery) {
  Reassembly& large = large_[context];
  large.check();
  if (entry.kind == SlotKind::kLargeStart) {
    std::uint64_t total = 0;
    if (entry.bytes != sizeof total) nonsense("an odd announcement");
    std::memcpy(&total, bytes, sizeof total);
    if (!large.announced(total, max_in_place_bytes(context), max_message_bytes()))
      nonsense("a message announced with " + std::to_string(total) + " bytes");
  } else if (entry.kind == SlotKind::kBundle) {
    check_whole(context);
  } else if (entry.kind == SlotKind::kMessage && !large.add({bytes, entry.bytes})) {
    nonsense("more bytes than it announced");
  }
  give_back(context, entry.run);
  if (!large.active() || !large.complete()) return false;
  reassembled_.add(1);
  large.take(delivery);
  delivery.context = context;
  return true;
}

void SlotTransport::refuse_length(std::size_t bytes) {
  nonsense("a message of " + std::to_string(bytes) + " bytes, above max_message_bytes");
}

void SlotTransport::nonsense(const std::string& what) {
  receive_error_.fail(ErrorCode::kProtocol, "the peer sent " + what + ", which leat never does (" +
                                                queue_pair_->describe() + ")");
}

// --- both

std::string SlotTransport::describe() const {
  return std::string(name_) + " on " + queue_pair_->describe();
}

void SlotTransport::add_stats(Stats& stats) const {
  stats.credit_waits += credit_waits_.get();
  stats.credit_returns += credit_returns_.get();
  stats.reassembled_messages += reassembled_.get();
  stats.rnr_retries += queue_pair_->rnr_retries();
  stats.slot_memory_bytes += slot_memory_bytes_;
  stats.send_requests += requests_.get() + side_requests_.get();
  stats.receive_requests += receive_requests_.get();
  stats.completions += send_completions_.get() + receive_completions_.get();
}

}  // namespace leat::detail
