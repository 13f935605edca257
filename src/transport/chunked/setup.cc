// Makes and starts a chunked transport: chooses the sizes of its regions, allocates them, posts the
// receives, and exchanges setups with the peer.
#include <algorithm>
#include <bit>

#include "net/tcp.h"
#include "transport/chunked/chunked.h"
#include "transport/parts/setup.h"

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

// Whether the device runs all requests as they are posted, so that nothing is in flight.
bool runs_at_once(const Limits& limits, const ChunkedOptions& options) {
  return limits.max_inline_bytes >= options.chunk_bytes;
}

std::uint64_t receive_count(const Limits& limits, const ChunkedOptions& options) {
  return std::min(options.depths.receive_requests, limits.max_receive_requests);
}

WindowOptions window_options(const ChunkedOptions& options) {
  return {options.chunk_bytes, options.window, options.link_enable, kMostStageBytes};
}

// To a peer with such regions, and twice the longest chunk, so that one always fits when nothing
// is.
std::size_t bytes_in_flight(const RegionShape& shape, const ChunkedOptions& options) {
  if (options.window == 0)
    return std::clamp(shape.units() * kPlaceUnitBytes / 4, kLeastStageBytes, kMostStageBytes);
  return (options.window + 1) * (options.chunk_bytes + sizeof(ChunkHeader));
}

ChunkedOptions options_of(const Settings& settings, const QueueDepths& depths) {
  return {.mode = settings.chunked_mode,
          .chunk_bytes = settings.chunked_chunk_bytes,
          .window = settings.chunked_window,
          .link_enable = settings.chunked_link_enable,
          .region_bytes = settings.chunked_region_bytes,
          .region_count = settings.chunked_region_count,
          .verify = settings.chunked_verify,
          .resume_timeout = settings.chunked_resume_timeout,
          .max_message_bytes = settings.max_message_bytes,
          .depths = depths};
}

std::unique_ptr<Resumer> resumer_of(const Endpoint& end, const Settings& settings) {
  if (settings.chunked_resume_timeout == std::chrono::milliseconds::zero()) return nullptr;
  // An idle side does not notice that the path is cut; its end of the TCP connection must be there
  // when the other side comes to resume, whose queue pair takes up to 8 seconds to fail.
  outlast(end.stream->fd(), settings.chunked_resume_timeout);
  return std::make_unique<Resumer>(*end.stream, end.active, end.depths);
}

}  // namespace

std::unique_ptr<Transport> ChunkedTransport::make(Endpoint end, const Settings& settings) {
  auto resumer = resumer_of(end, settings);
  return std::make_unique<ChunkedTransport>(std::move(end.device), std::move(end.queue_pair),
                                            options_of(settings, end.depths), std::move(resumer));
}

ChunkedTransport::ChunkedTransport(std::unique_ptr<Device> device,
                                   std::unique_ptr<QueuePair> queue_pair,
                                   const ChunkedOptions& options, std::unique_ptr<Resumer> resumer)
    : Transport(options.max_message_bytes),
      device_(std::move(device)),
      limits_(device_->limits()),
      // Where requests run as they are posted, between processes of one host, no path can be cut.
      resumption_(*device_, std::move(queue_pair),
                  runs_at_once(limits_, options) ? nullptr : std::move(resumer),
                  receive_count(limits_, options), options.resume_timeout, *this),
      options_(options),
      window_(window_options(options)),
      returns_(receive_count(limits_, options)) {
  const bool pinned = limits_.pins_memory;
  const std::size_t by_default = pinned ? kPinnedRegionBytes : kRegionBytes;
  const std::size_t others = pinned ? kPinnedContextRegionBytes : kContextRegionBytes;
  const std::size_t first = options.region_bytes == 0 ? by_default : options.region_bytes;
  layout_.first = shape_of(first, options.region_count);
  layout_.others = shape_of(std::min(first, others), options.region_count);
  if (layout_.first.region_units > kMaxPlace || layout_.first_unit(kContextCount) > kMaxPlace)
    throw Error(ErrorCode::kInvalidArgument,
                "transport chunked: " + std::to_string(options.region_count) + " regions of " +
                    std::to_string(first) + " bytes are 8 GiB or more",
                "Lower chunked_region_bytes or chunked_region_count.");
  // Elsewhere chunks are in flight: memory for them, before the peer hears that the connection
  // stands.
  if (!runs_at_once(limits_, options)) {
    ChunkedOptions likely = options;  // if the peer is set alike
    likely.chunk_bytes = std::min(options.chunk_bytes, layout_.first.part_bytes());
    stage(bytes_in_flight(layout_.first, likely));
  }
  region_ = device_->allocate(layout_.bytes() + sizeof(CreditWords), kRemoteWrite);

  post_all_receives(*resumption_.queue_pair(), returns_.receives());
}

std::vector<std::byte> ChunkedTransport::setup() const {
  const RemoteRegion region = region_->remote();
  return encode_setup(Setup{region.address, region.bytes, layout_.bytes(),
                            layout_.first.region_units, layout_.others.region_units,
                            layout_.first.count, returns_.receives(), max_message_bytes(),
                            region.key, options_.verify ? 1U : 0U});
}

void ChunkedTransport::stage(std::size_t bytes) {
  const std::uint64_t units = std::bit_ceil(units_of(bytes));
  staging_ = device_->allocate(units * kPlaceUnitBytes, kLocalOnly);
  stage_ = RingSender(units);
}

void ChunkedTransport::start(std::span<const std::byte> peer_setup) {
  Setup peer;
  if (!decode_setup(peer_setup, peer)) nonsense(kSetupOfTheWrongSize);
  peer_layout_.first = {peer.first_units, peer.region_count};
  peer_layout_.others = {peer.others_units, peer.region_count};
  if (!sound(peer_layout_.first) || !sound(peer_layout_.others) ||
      peer_layout_.first_unit(kContextCount) > kMaxPlace)
    nonsense("regions of impossible sizes");
  const CreditedRegion region{{peer.region_address, peer.region_bytes, peer.region_key},
                              peer.credits_offset,
                              peer.receive_count};
  if (!region.sound(peer_layout_.bytes()) || peer.max_message_bytes == 0 || peer.verify > 1)
    nonsense(kSetupThatContradictsItself);

  agree_with(peer.max_message_bytes);
  options_.verify |= peer.verify != 0;
  peer_region_ = region.region;
  credits_.start(region_->memory().data() + layout_.bytes(), region);
  returns_.start(region);
  for (Context context = 0; context < kContextCount; ++context) {
    flows_[context].places = PoolSender(peer_layout_.shape(context));
    receivers_[context] = PoolReceiver(layout_.shape(context));
  }
  // No chunk is longer than one request may be with a header, or than the largest region.
  options_.chunk_bytes = std::min({options_.chunk_bytes, peer_layout_.first.part_bytes(),
                                   limits_.max_request_bytes - sizeof(ChunkHeader)});
  if (staging_ != nullptr) fit_staging();
  set_facts();
}

void ChunkedTransport::fit_staging() {
  std::size_t in_flight = bytes_in_flight(peer_layout_.first, options_);
  if (in_flight > staging_->memory().size()) {
    try {
      stage(in_flight);
    } catch (const Error&) {  // less is in flight then
      in_flight = staging_->memory().size();
      options_.chunk_bytes = std::min(options_.chunk_bytes, in_flight / 4);
    }
  }
  if (options_.window == 0) options_.chunk_bytes = std::min(options_.chunk_bytes, in_flight / 4);
  WindowOptions window = window_options(options_);
  window.most_bytes = in_flight / 2;
  window_ = ChunkWindow(window);
}

}  // namespace leat::detail
