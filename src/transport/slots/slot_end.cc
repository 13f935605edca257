#include "transport/slots/slot_end.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/asymmetric_barrier.h"
#include "base/random.h"
#include "transport/transport.h"

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
          .bundles = settings.batched_bundles,
          .max_message_bytes = settings.max_message_bytes,
          .depths = depths};
}

SlotEnd::SlotEnd(const SlotMemory& memory, std::unique_ptr<Device> device,
                 std::unique_ptr<QueuePair> queue_pair, const SlotOptions& options)
    : memory_(memory),
      device_(std::move(device)),
      queue_pair_(std::move(queue_pair)),
      limits_(device_->limits()),
      options_(options),
      asymmetric_barriers_(register_for_heavy_barriers()),
      header_key_(random_word()),
      layout_(options.slot_bytes, options.slot_count,
              memory.shares_memory ? 0 : memory.header_bytes),
      max_message_bytes_(options.max_message_bytes),
      // The receiver copies so much of a short message, also from the last slot.
      region_(device_->allocate(memory.head_bytes + layout_.bytes() + Delivery::kSmallBytes,
                                kRemoteRead | kRemoteWrite)),
      head_(region_->memory().data()) {
  region_->prepare(0, memory_.head_bytes + layout_.bytes());
  slot_memory_bytes_ = layout_.bytes();
  if (!memory_.mirrors && limits_.max_inline_bytes >= layout_.bytes()) return;
  staging_ = device_->allocate(layout_.bytes(), memory_.mirrors ? kRemoteRead : kLocalOnly);
  slot_memory_bytes_ += layout_.bytes();
}

std::vector<std::byte> SlotEnd::setup() const {
  const RemoteRegion region = region_->remote();
  const RemoteRegion mirror = memory_.mirrors ? staging_->remote() : RemoteRegion();
  const Setup setup{region.address,
                    region.bytes,
                    options_.slot_bytes,
                    options_.slot_count,
                    options_.max_message_bytes,
                    header_key_,
                    region.key,
                    static_cast<std::uint16_t>(memory_.header_bytes),
                    memory_.shares_memory,
                    asymmetric_barriers_,
                    mirror.address,
                    mirror.bytes,
                    mirror.key,
                    0};
  const auto bytes = std::as_bytes(std::span(&setup, 1));
  return {bytes.begin(), bytes.end()};
}

void SlotEnd::start(std::span<const std::byte> peer_setup) {
  Setup peer;
  if (peer_setup.size() != sizeof peer) nonsense("a setup of the wrong size");
  std::memcpy(&peer, peer_setup.data(), sizeof peer);
  if (peer.slot_bytes < kMinSlotBytes || peer.slot_bytes > kMaxSlotBytes ||
      peer.slot_count < kMinSlots || peer.slot_count > kMaxSlots)
    nonsense("slots of impossible sizes");
  if (memory_.shares_memory && peer.shares_memory != 1)
    nonsense("a setup that shares no memory, on a device that does");
  asymmetric_barriers_ = asymmetric_barriers_ && peer.asymmetric_barriers == 1;
  // Both sides use the smaller of their sizes, so that slots and staging mirror each other.
  layout_ = SlotLayout(
      std::min<std::size_t>(options_.slot_bytes, peer.slot_bytes),
      static_cast<unsigned>(std::min<std::uint64_t>(options_.slot_count, peer.slot_count)),
      layout_.header_bytes());
  if (peer.header_bytes != memory_.header_bytes || peer.max_message_bytes == 0 ||
      peer.region_bytes < memory_.head_bytes + layout_.bytes() ||
      peer.region_address % alignof(std::uint64_t) != 0 ||
      peer.region_address > UINT64_MAX - peer.region_bytes)
    nonsense("a setup that contradicts itself");
  if (peer.mirror_bytes != 0 &&
      (peer.mirror_bytes < layout_.bytes() || peer.mirror_address % alignof(std::uint64_t) != 0 ||
       peer.mirror_address > UINT64_MAX - peer.mirror_bytes))
    nonsense("a setup that contradicts itself");
  max_message_bytes_ = std::min<std::uint64_t>(max_message_bytes_, peer.max_message_bytes);
  for (const Context context : {0U, 1U})
    max_in_place_bytes_[context] =
        std::min(layout_.run_bytes(context, layout_.longest_run(context)), max_message_bytes_);
  peer_region_ = {peer.region_address, peer.region_bytes, peer.region_key};
  peer_mirror_ = {peer.mirror_address, peer.mirror_bytes, peer.mirror_key};
  peer_header_key_ = peer.header_key;
  if (!memory_.mirrors) peer_memory_ = queue_pair_->peer_memory(peer_region_);
  if (peer_memory_ == nullptr && staging_ == nullptr) {
    staging_ = device_->allocate(layout_.bytes(), kLocalOnly);
    slot_memory_bytes_ += layout_.bytes();
  }
  outgoing_ =
      peer_memory_ != nullptr ? peer_memory_ + memory_.head_bytes : staging_->memory().data();
}

// --- send side

SendRequest SlotEnd::write_of(Context context, const SlotRun& run, std::size_t bytes) const {
  SendRequest request;
  request.opcode = Opcode::kWrite;
  request.signaled = false;
  request.inlined = peer_memory_ != nullptr || bytes <= limits_.max_inline_bytes;
  request.local = outgoing(context, run);
  request.bytes = bytes;
  request.local_key = request.inlined ? 0 : staging_->local_key();
  request.remote_address = peer_slots() + layout_.offset(context, run.first);
  request.remote_key = peer_region_.key;
  return request;
}

std::size_t SlotEnd::post_sends(std::span<const SendRequest> list) {
  const std::size_t accepted = queue_pair_->post_send(list);
  requests.add(accepted);
  return accepted;
}

std::size_t SlotEnd::poll_sends(std::span<Completion> completions) {
  const std::size_t count = queue_pair_->poll_sends(completions);
  send_completions.add(count);
  return count;
}

void SlotEnd::fail_sending(const std::string& what) {
  send_error.fail(ErrorCode::kProtocol, "the peer sent " + what + ", which leat never does (" +
                                            queue_pair_->describe() + ")");
}

// --- receive side

void SlotEnd::refuse_length(std::size_t bytes) {
  nonsense("a message of " + std::to_string(bytes) + " bytes, above max_message_bytes");
}

void SlotEnd::nonsense(const std::string& what) {
  receive_error.fail(ErrorCode::kProtocol, "the peer sent " + what + ", which leat never does (" +
                                               queue_pair_->describe() + ")");
}

// --- both

std::string SlotEnd::describe() const {
  return std::string(memory_.transport) + " on " + queue_pair_->describe();
}

void SlotEnd::add_stats(Stats& stats) const {
  stats.credit_waits += credit_waits.get();
  stats.credit_returns += credit_returns.get();
  stats.rnr_retries += queue_pair_->rnr_retries();
  stats.slot_memory_bytes += slot_memory_bytes_;
  stats.send_requests += requests.get() + side_requests.get();
  stats.receive_requests += receive_requests.get();
  stats.completions += send_completions.get() + receive_completions.get();
}

}  // namespace leat::detail
