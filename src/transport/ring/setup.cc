// Makes and starts a ring transport: chooses the sizes of its rings, allocates them, posts the
// receives, and exchanges setups with the peer. ring.cc moves the messages.
#include <algorithm>
#include <bit>

#include "transport/parts/setup.h"
#include "transport/ring/ring.h"

namespace leat::detail {
namespace {

// Memory that is pinned counts against a limit that is 8 MiB for users of a plain Debian; memory
// that is not is only taken when a ring is first used.
constexpr std::size_t kPinnedRingBytes = std::size_t{1} << 20;
constexpr std::size_t kPinnedContextRingBytes = std::size_t{64} << 10;
constexpr std::size_t kRingBytes = std::size_t{4} << 20;
constexpr std::size_t kContextRingBytes = std::size_t{1} << 20;
constexpr std::size_t kMinRingBytes = 4096;
// Where calls cost more than the copy.
constexpr std::size_t kMostBytesOfShortWay = 1024;

std::uint64_t ring_units(std::size_t wanted, std::size_t by_default) {
  const std::size_t bytes = std::max(wanted == 0 ? by_default : wanted, kMinRingBytes);
  return std::bit_floor(
      std::min<std::uint64_t>(bytes / kPlaceUnitBytes, kMaxPlace / kContextCount));
}

// The setup blob, as it lies in memory.
struct Setup {
  std::uint64_t region_address;
  std::uint64_t region_bytes;
  std::uint64_t credits_offset;
  std::uint64_t context0_units;
  std::uint64_t other_units;
  std::uint64_t receive_count;
  std::uint64_t max_message_bytes;
  std::uint32_t region_key;
  std::uint32_t reserved;
};

}  // namespace

RingOptions RingOptions::of(const Settings& settings, const QueueDepths& depths) {
  return {.ring_bytes = settings.ring_bytes,
          .context_ring_bytes = settings.ring_context_bytes,
          .max_message_bytes = settings.max_message_bytes,
          .depths = depths};
}

std::unique_ptr<Transport> RingTransport::make(Endpoint end, const Settings& settings) {
  return std::make_unique<RingTransport>(std::move(end.device), std::move(end.queue_pair),
                                         RingOptions::of(settings, end.depths));
}

RingTransport::RingTransport(std::unique_ptr<Device> device, std::unique_ptr<QueuePair> queue_pair,
                             const RingOptions& options)
    : Transport(options.max_message_bytes),
      device_(std::move(device)),
      queue_pair_(std::move(queue_pair)),
      limits_(device_->limits()),
      returns_(std::min(options.depths.receive_requests, limits_.max_receive_requests)) {
  const bool pinned = limits_.pins_memory;
  layout_.context0_units = ring_units(options.ring_bytes, pinned ? kPinnedRingBytes : kRingBytes);
  layout_.other_units =
      ring_units(options.context_ring_bytes, pinned ? kPinnedContextRingBytes : kContextRingBytes);
  region_ = device_->allocate(layout_.ring_bytes() + sizeof(CreditWords), kRemoteWrite);
  rings_ = region_->memory().data();
  const std::size_t largest = layout_.context0_units / kPieceShare * kPlaceUnitBytes;
  if (limits_.max_inline_bytes < largest)
    staging_ = device_->allocate(layout_.ring_bytes(), kLocalOnly);

  post_all_receives(*queue_pair_, returns_.receives());
}

std::unique_ptr<MemoryRegion> RingTransport::allocate(std::size_t bytes, unsigned access) {
  return device_->allocate(bytes, access);
}

std::vector<std::byte> RingTransport::setup() const {
  const RemoteRegion region = region_->remote();
  return encode_setup(Setup{region.address, region.bytes, layout_.ring_bytes(),
                            layout_.context0_units, layout_.other_units, returns_.receives(),
                            max_message_bytes(), region.key, 0});
}

void RingTransport::start(std::span<const std::byte> peer_setup) {
  Setup peer;
  if (!decode_setup(peer_setup, peer)) nonsense(kSetupOfTheWrongSize);
  const auto sound_ring = [](std::uint64_t units) {
    return units >= kMinRingBytes / kPlaceUnitBytes && units <= kMaxPlace / kContextCount &&
           std::has_single_bit(units);
  };
  if (!sound_ring(peer.context0_units) || !sound_ring(peer.other_units))
    nonsense("rings of impossible sizes");
  const Layout theirs{peer.context0_units, peer.other_units};
  const CreditedRegion region{{peer.region_address, peer.region_bytes, peer.region_key},
                              peer.credits_offset,
                              peer.receive_count};
  if (!region.sound(theirs.ring_bytes()) || peer.max_message_bytes == 0)
    nonsense(kSetupThatContradictsItself);

  credits_.start(region_->memory().data() + layout_.ring_bytes(), region);
  returns_.start(region);
  // Both sides use the smaller of their rings, so that places and staging mirror each other.
  layout_.context0_units = std::min(layout_.context0_units, peer.context0_units);
  layout_.other_units = std::min(layout_.other_units, peer.other_units);
  agree_with(peer.max_message_bytes);
  peer_region_ = region.region;
  peer_memory_ = queue_pair_->peer_memory(peer_region_);
  for (Context context = 0; context < kContextCount; ++context) {
    senders_[context] = RingSender(layout_.units(context));
    receivers_[context] = RingReceiver(layout_.units(context), max_message_bytes());
    first_[context] = encode({context, static_cast<std::uint32_t>(layout_.first_unit(context))});
  }
  const auto in_place = [&](Context context) {
    return layout_.units(context) / kPieceShare * kPlaceUnitBytes;
  };
  set_in_place(in_place(0), in_place(1));
  if (peer_memory_ != nullptr && max_message_bytes() >= CompletionEntry::kPayloadBytes)
    arrivals_ = queue_pair_->arrivals();
  if (arrivals_ != nullptr) {
    too_long_for_short_way_ =
        std::min({kMostBytesOfShortWay, max_in_place_bytes(0), max_in_place_bytes(1)}) + 1;
    short_arrivals_ = &arrivals_->receiver;
  }
  set_event_fds(*queue_pair_);
  facts_.reserves_room = true;
  facts_.leaves_by_itself = true;
  facts_.reads = this;
}

}  // namespace leat::detail
