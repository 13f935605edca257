#include "transport/planned/planned.h"

#include <algorithm>
#include <atomic>

#include "leat/error.h"
#include "transport/parts/setup.h"

namespace leat::detail {
namespace {

// A write this large costs little more than its bytes; a larger one would keep the receiver waiting
// for its first message.
constexpr std::uint64_t kBatchBytes = std::uint64_t{64} << 10;

// As for rings: pinned memory is scarce, other memory is only taken when it is first used.
constexpr std::size_t kPinnedRegionBytes = std::size_t{1} << 20;
constexpr std::size_t kRegionBytes = std::size_t{64} << 20;

// After the planned region: for each context the peer's word of the array that it opened last.
constexpr std::size_t kWordsBytes = kArrayContexts * sizeof(std::uint64_t);

constexpr std::size_t kMaxDigestDigits = 64;

// The setup blob after the ring transport's, as it lies in memory.
struct PlannedSetup {
  std::uint64_t region_address;
  std::uint64_t region_bytes;  // of the planned region; the words follow it
  std::uint32_t region_key;
  std::uint32_t digest_digits;
  char digest[kMaxDigestDigits];
};

std::uint64_t region_bytes(std::size_t wanted, bool pinned) {
  if (wanted == 0) return pinned ? kPinnedRegionBytes : kRegionBytes;
  constexpr std::size_t kMost = std::size_t{1} << 48;  // no device has more, and sums stay small
  return (std::min(wanted, kMost) + kPlaceUnitBytes - 1) / kPlaceUnitBytes * kPlaceUnitBytes;
}

std::string digest_name(const std::string& digest) { return digest.empty() ? "none" : digest; }

}  // namespace

std::unique_ptr<Transport> PlannedTransport::make(Endpoint end, const Settings& settings) {
  return std::make_unique<PlannedTransport>(
      std::move(end.device), std::move(end.queue_pair), RingOptions::of(settings, end.depths),
      PlannedOptions{settings.planned_bytes, settings.planned_digest});
}

PlannedTransport::PlannedTransport(std::unique_ptr<Device> device,
                                   std::unique_ptr<QueuePair> queue_pair,
                                   const RingOptions& ring_options, const PlannedOptions& options)
    : RingTransport(std::move(device), std::move(queue_pair), ring_options),
      plan_digest_(options.plan_digest.substr(0, kMaxDigestDigits)),
      batch_bytes_(std::min<std::uint64_t>(kBatchBytes, limits().max_request_bytes)),
      arrays_(region_bytes(options.region_bytes, limits().pins_memory)) {
  region_ = this->device().allocate(arrays_.region_bytes() + kWordsBytes, kRemoteWrite);
  incoming_ = region_->memory().data();
  if (limits().max_inline_bytes <
      std::min<std::uint64_t>(arrays_.region_bytes(), limits().max_request_bytes))
    staging_ = this->device().allocate(arrays_.region_bytes(), kLocalOnly);
}

std::vector<std::byte> PlannedTransport::setup() const {
  const RemoteRegion region = region_->remote();
  PlannedSetup setup{region.address,
                     arrays_.region_bytes(),
                     region.key,
                     static_cast<std::uint32_t>(plan_digest_.size()),
                     {}};
  plan_digest_.copy(setup.digest, sizeof setup.digest);
  std::vector<std::byte> blob = RingTransport::setup();
  const std::vector<std::byte> own = encode_setup(setup);
  blob.insert(blob.end(), own.begin(), own.end());
  return blob;
}

void PlannedTransport::start(std::span<const std::byte> peer_setup) {
  PlannedSetup peer;
  const std::size_t rings = peer_setup.size() - std::min(peer_setup.size(), sizeof peer);
  if (!decode_setup(peer_setup.subspan(rings), peer)) nonsense(kSetupOfTheWrongSize);
  RingTransport::start(peer_setup.first(rings));

  if (peer.digest_digits > sizeof peer.digest) nonsense("a digest that is too long");
  const std::string peer_digest(peer.digest, peer.digest_digits);
  if (peer_digest.find_first_not_of("0123456789abcdef") != std::string::npos)
    nonsense("a digest that is not hexadecimal");
  if (peer_digest != plan_digest_)
    throw Error(ErrorCode::kInvalidArgument,
                "the plans differ: planned_digest is " + digest_name(plan_digest_) + " here and " +
                    digest_name(peer_digest) + " at the peer",
                "Make both plans from the same model with the same settings.");
  if (peer.region_bytes != arrays_.region_bytes())
    throw Error(ErrorCode::kInvalidArgument,
                "planned_bytes differ: " + std::to_string(arrays_.region_bytes()) + " here and " +
                    std::to_string(peer.region_bytes) + " at the peer",
                "Set the same on both sides.");
  const std::uint64_t bytes = peer.region_bytes + kWordsBytes;
  if (peer.region_address % sizeof(std::uint64_t) != 0 || peer.region_address > UINT64_MAX - bytes)
    nonsense("a planned region at an impossible address");
  peer_region_ = {peer.region_address, bytes, peer.region_key};
  outgoing_ = queue_pair().peer_memory(peer_region_);
  direct_ = outgoing_ != nullptr;
  if (!direct_ && staging_ != nullptr) outgoing_ = staging_->memory().data();
  facts_.arrays = this;
}

// --- sending

void PlannedTransport::open(unsigned context, const MessageArray& array) {
  if (array.message_bytes > max_array_message_bytes())
    throw Error(ErrorCode::kInvalidArgument,
                "open: messages of " + std::to_string(array.message_bytes) +
                    " bytes: this device moves at most " +
                    std::to_string(max_array_message_bytes()) + " in one write",
                "Plan more and smaller messages.");
  arrays_.open(context, array);
  if (array.incoming != 0) region_->prepare(array.base_bytes, array.message_bytes * array.count);
}

bool PlannedTransport::try_tell(unsigned context) {
  // Release: whatever was read out of memory that the array reuses was read before the peer writes.
  std::atomic_thread_fence(std::memory_order_release);
  const std::uint64_t word =
      peer_region_.address + arrays_.region_bytes() + context * sizeof(std::uint64_t);
  if (!post_word(queue_pair(), word, peer_region_.key, arrays_.word(context))) return false;
  queue_pair().wake_sender();  // it may sleep until then
  return true;
}

bool PlannedTransport::look_at_peer(unsigned context) {
  std::byte* words = region_->memory().data() + arrays_.region_bytes();
  auto* word = reinterpret_cast<std::uint64_t*>(words) + context;
  // Acquire: we write into the array's memory only after the peer was done with what was there.
  const std::uint64_t heard = std::atomic_ref(*word).load(std::memory_order_acquire);
  using enum MessageArrays::Heard;
  switch (arrays_.hear_peer(context, heard, outgoing_ != nullptr)) {
    case kOpen:
      return true;
    case kNoRegion:
      nonsense("word of an open array, but has taken its planned region away");
    case kNothing:
      break;
    case kTooFar:
      nonsense("word that it opened context " + std::to_string(context) +
               " again, while messages of its array number " +
               std::to_string(arrays_.epoch(context)) + " are still to be sent");
    case kBadNumbers:
      nonsense("word of numbers that the messages of context " + std::to_string(context) +
               " cannot have");
    case kDamaged:
      nonsense("a damaged word of context " + std::to_string(context));
  }
  try_post();  // the peer may wait for it before it opens
  try_progress();
  return false;
}

std::uint64_t PlannedTransport::batch_limit(unsigned context) const {
  return std::max<std::uint64_t>(1, batch_bytes_ / arrays_.array(context).message_bytes);
}

// A waiter takes in what arrives here, or two sides that only send would wait for each other.
bool PlannedTransport::post_batch() {
  if (!find_credit()) [[unlikely]] {
    try_progress();
    return false;
  }
  const MessageArray& array = arrays_.array(batch_.context);
  const std::uint64_t place = array.base_bytes + array.message_bytes * batch_.index;
  SendRequest request;
  request.opcode = Opcode::kWriteWithImmediate;
  request.signaled = false;
  request.bytes = array.message_bytes * batch_.count;
  request.inlined = direct_ || request.bytes <= limits().max_inline_bytes;
  request.local = outgoing_ + place;
  if (!request.inlined) request.local_key = staging_->local_key();
  request.remote_address = peer_region_.address + place;
  request.remote_key = peer_region_.key;
  request.immediate = encode(Immediate::of_number(arrays_.number(batch_.context, batch_.index)));
  if (!post_request(request)) [[unlikely]] {
    try_progress();
    return false;
  }
  sent_bytes_.add(request.bytes);
  sent_messages_.add(batch_.count);
  writes_.add(1);
  if (received_last_) rounds_.add(1);
  received_last_ = false;
  batch_.count = 0;
  return true;
}

// --- receiving

void PlannedTransport::refuse(std::uint32_t number, std::size_t bytes, const char* why) {
  nonsense("a write of " + std::to_string(bytes) + " bytes to " + arrays_.message_of(number) +
           " although " + why);
}

void PlannedTransport::throw_ended() const {
  throw Error(ErrorCode::kPeerDied,
              "the peer ended its side; what is waited for will not come any more");
}

std::string PlannedTransport::describe() const {
  const std::string ring = RingTransport::describe();
  return "planned" + ring.substr(ring.find(' '));
}

void PlannedTransport::add_stats(Stats& stats) const {
  RingTransport::add_stats(stats);
  stats.sent_bytes += sent_bytes_.get();
  stats.sent_messages += sent_messages_.get();
  stats.planned_writes += writes_.get();
  stats.rounds += rounds_.get();
  stats.received_bytes += received_bytes_.get();
  stats.received_messages += received_messages_.get();
}

}  // namespace leat::detail
