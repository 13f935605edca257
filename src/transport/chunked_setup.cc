// How a chunked transport comes to be: sizes, memory, posted receives, and what both sides tell
// each other.
#include <algorithm>
#include <bit>
#include <cstring>

#include "transport/chunked.h"
#include "transport/requests.h"

namespace leat::detail {
namespace {

// Memory that is pinned counts against a limit that is 8 MiB for users of a plain Debian; memory
// that is not is only taken when it is first used.
constexpr std::size_t kPinnedRegionBytes = std::size_t{1} << 20;
constexpr std::size_t kPinnedContextRegionBytes = std::size_t{16} << 10;
constexpr std::size_t kRegionBytes = std::size_t{64} << 20;
constexpr std::size_t kContextRegionBytes = std::size_t{1} << 20;
constexpr std::size_t kLeastRegionBytes = 4096;
constexpr std::size_t kLeastStageBytes = std::size_t{1} << 20;
constexpr std::size_t kMostStageBytes = std::size_t{64} << 20;
constexpr std::uint64_t kLeastReceives = 4;

// The setup blob, as it lies in memory.
struct Setup {
  std::uint64_t region_address;
  std::uint64_t region_bytes;
  std::uint64_t credits_offset;
  std::uint64_t first_units;   // of each region of context 0
  std::uint64_t others_units;  // of the other contexts
  std::uint64_t region_count;
  std::uint64_t receive_count;
  std::uint64_t max_message_bytes;
  std::uint32_t region_key;
  std::uint32_t verify;
};

RegionShape shape_of(std::size_t region_bytes, std::size_t count) {
  return {RegionShape::units_of(std::max(region_bytes, kLeastRegionBytes)), count};
}

bool sound(const RegionShape& shape) {
  return shape.region_units >= RegionShape::units_of(kLeastRegionBytes) &&
         shape.region_units <= kMaxPlace && shape.count >= kLeastRegions &&
         shape.count <= kMostRegions;
}

WindowOptions window_options(const ChunkedOptions& options) {
  return {options.chunk_bytes, options.window, options.link_enable, kMostStageBytes};
}

}  // namespace

ChunkedTransport::ChunkedTransport(std::unique_ptr<Device> device,
                                   std::unique_ptr<QueuePair> queue_pair,
                                   const ChunkedOptions& options, std::unique_ptr<Resumer> resumer)
    : device_(std::move(device)),
      resumer_(std::move(resumer)),
      queue_pair_(std::move(queue_pair)),
      limits_(device_->limits()),
      options_(options),
      max_message_bytes_(options.max_message_bytes),
      receive_count_(std::min(options.depths.receive_requests, limits_.max_receive_requests)),
      window_(window_options(options)) {
  const bool pinned = limits_.pins_memory;
  const std::size_t by_default = pinned ? kPinnedRegionBytes : kRegionBytes;
  const std::size_t others = pinned ? kPinnedContextRegionBytes : kContextRegionBytes;
  const std::size_t first = options.region_bytes == 0 ? by_default : options.region_bytes;
  layout_.first = shape_of(first, options.region_count);
  layout_.others = shape_of(std::min(first, others), options.region_count);
  if (layout_.first.region_units > kMaxPlace || layout_.first_unit(kContextCount) > kIndexBit)
    throw Error(ErrorCode::kInvalidArgument,
                "transport chunked: " + std::to_string(options.region_count) + " regions of " +
                    std::to_string(first) + " bytes are more than 8 GiB",
                "Lower region_bytes or region_count.");
  region_ = device_->allocate(layout_.bytes() + sizeof(Credits), kRemoteWrite);
  credits_ = region_->memory().data() + layout_.bytes();

  blank_receives_.resize(receive_count_);
  post_receives(*queue_pair_, blank_receives_);
}

std::vector<std::byte> ChunkedTransport::setup() const {
  const RemoteRegion region = region_->remote();
  const Setup setup{region.address,
                    region.bytes,
                    layout_.bytes(),
                    layout_.first.region_units,
                    layout_.others.region_units,
                    layout_.first.count,
                    receive_count_,
                    max_message_bytes_,
                    region.key,
                    options_.verify ? 1U : 0U};
  const auto bytes = std::as_bytes(std::span(&setup, 1));
  return {bytes.begin(), bytes.end()};
}

void ChunkedTransport::start(std::span<const std::byte> peer_setup) {
  Setup peer;
  if (peer_setup.size() != sizeof peer) nonsense("a setup of the wrong size");
  std::memcpy(&peer, peer_setup.data(), sizeof peer);
  peer_layout_.first = {peer.first_units, peer.region_count};
  peer_layout_.others = {peer.others_units, peer.region_count};
  if (!sound(peer_layout_.first) || !sound(peer_layout_.others) ||
      peer_layout_.first_unit(kContextCount) > kIndexBit)
    nonsense("regions of impossible sizes");
  const bool sound_region = peer.credits_offset >= peer_layout_.bytes() &&
                            peer.credits_offset % alignof(Credits) == 0 &&
                            peer.region_bytes >= sizeof(Credits) &&
                            peer.credits_offset <= peer.region_bytes - sizeof(Credits) &&
                            peer.region_address <= UINT64_MAX - peer.region_bytes;
  if (!sound_region || peer.receive_count < kLeastReceives || peer.max_message_bytes == 0 ||
      peer.verify > 1)
    nonsense("a setup that contradicts itself");

  max_message_bytes_ = std::min<std::uint64_t>(max_message_bytes_, peer.max_message_bytes);
  options_.verify |= peer.verify != 0;
  peer_receive_count_ = peer.receive_count;
  peer_region_ = {peer.region_address, peer.region_bytes, peer.region_key};
  peer_credits_address_ = peer.region_address + peer.credits_offset;
  for (Context context = 0; context < kContextCount; ++context) {
    senders_[context] = PoolSender(peer_layout_.shape(context));
    receivers_[context] = PoolReceiver(layout_.shape(context));
  }
  // No chunk is longer than one request may be with a header, or than the largest region.
  options_.chunk_bytes = std::min({options_.chunk_bytes, peer_layout_.first.part_bytes(),
                                   limits_.max_request_bytes - sizeof(ChunkHeader)});
  if (limits_.max_inline_bytes >= options_.chunk_bytes) {
    // Requests run as they are posted, between processes of one host: no path that could be cut.
    resumer_.reset();
    return;
  }
  watch_queue_pair();

  // All that is in flight, and twice the longest chunk, so that one always fits when nothing is.
  const std::size_t pool = peer_layout_.first.units() * kPlaceUnitBytes;
  std::size_t in_flight = std::clamp(pool / 4, kLeastStageBytes, kMostStageBytes);
  if (options_.window == 0) {
    options_.chunk_bytes = std::min(options_.chunk_bytes, in_flight / 4);
  } else {
    in_flight = (options_.window + 1) * (options_.chunk_bytes + sizeof(ChunkHeader));
  }
  const std::uint64_t units = std::bit_ceil(units_of(in_flight));
  staging_ = device_->allocate(units * kPlaceUnitBytes, kLocalOnly);
  stage_ = RingSender(units);
  WindowOptions window = window_options(options_);
  window.most_bytes = in_flight / 2;
  window_ = ChunkWindow(window);
}

}  // namespace leat::detail
