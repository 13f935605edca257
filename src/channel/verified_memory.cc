#include "channel/verified_memory.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "attest/record.h"
#include "base/wire.h"
#include "leat/error.h"

namespace leat::detail {

using trusted::AttestationKernel;
using trusted::Kind;
using trusted::kRecordOverheadBytes;
using trusted::RecordHeader;
using trusted::Verdict;

namespace {

// The purpose of a record of kind write, in its slot.
constexpr std::uint32_t kDescription = 0;  // the first one: describes the sender's memory
constexpr std::uint32_t kMemory = 1;

// The number of written bytes (8); address (8), number (8) and key (4) of the published ones; zero
// (4).
constexpr std::size_t kDescriptionBytes = 32;

Error nonsense(const std::string& what) {
  return {ErrorCode::kProtocol, "the peer " + what, "Use the same release of leat on both sides."};
}

Error no_reads() {
  return {ErrorCode::kUnavailable, "the peer's memory cannot be read beside this transport",
          "Set transport=attested+ring on both sides."};
}

bool fits(std::uint64_t offset, std::uint64_t bytes, std::uint64_t memory) {
  return offset <= memory && bytes <= memory - offset;
}

void check_place(const char* what, std::uint64_t offset, std::uint64_t bytes,
                 std::uint64_t memory) {
  if (!fits(offset, bytes, memory))
    throw Error(ErrorCode::kInvalidArgument, std::string(what) + " of " + std::to_string(bytes) +
                                                 " bytes at " + std::to_string(offset) +
                                                 ": there are " + std::to_string(memory));
}

}  // namespace

VerifiedMemory::VerifiedMemory(AttestedTransport& transport, Context context,
                               const trusted::RemoteMemoryOptions& options)
    : transport_(transport),
      reads_(transport.facts().reads),
      context_(context),
      published_bytes_(options.published_bytes),
      memory_(options.memory_bytes) {
  if (published_bytes_ != 0) {
    if (reads_ == nullptr) throw no_reads();
    published_ = &transport_.keep(reads_->allocate(published_bytes_, kRemoteRead));
  }
  transport_.take_writes(context_);
}

bool VerifiedMemory::try_describe() {
  std::array<std::byte, kDescriptionBytes> description{};
  WireWriter writer(description);
  const RemoteRegion region = published_ == nullptr ? RemoteRegion{} : published_->remote();
  writer.number(std::uint64_t{memory_.size()});
  writer.number(region.address);
  writer.number(std::uint64_t{published_bytes_});
  writer.number(region.key);
  return sent(transport_.try_write(description, context_, kDescription, 0));
}

bool VerifiedMemory::try_take_description() {
  Delivery delivery;
  const ReceiveResult result = transport_.try_receive(context_, delivery);
  if (result == ReceiveResult::kNothing) return false;
  if (result == ReceiveResult::kEnd)
    throw Error(ErrorCode::kPeerDied, "the peer ended before it described its memory");
  const std::span payload(delivery.data, delivery.bytes);
  const auto header = trusted::read_header(AttestedTransport::record_around(payload));
  bool sound = header->slot == kDescription && payload.size() == kDescriptionBytes;
  if (sound) {
    WireReader reader(payload);
    peer_memory_bytes_ = reader.number<std::uint64_t>();
    peer_published_.address = reader.number<std::uint64_t>();
    peer_published_.bytes = reader.number<std::uint64_t>();
    peer_published_.key = reader.number<std::uint32_t>();
    constexpr auto kEnd = std::numeric_limits<std::uint64_t>::max();
    sound = reader.zeros(4) && peer_published_.address <= kEnd - peer_published_.bytes;
  }
  transport_.release(delivery);
  if (!sound) throw nonsense("described its memory in an impossible way");
  return true;
}

bool VerifiedMemory::try_write(std::uint64_t offset, std::span<const std::byte> bytes) {
  check_place("a write", offset, bytes.size(), peer_memory_bytes_);
  return sent(transport_.try_write(bytes, context_, kMemory, offset));
}

VerifiedMemory::Taken VerifiedMemory::take(std::span<const std::byte>& changed) {
  if (!broken_.empty()) throw nonsense(broken_);
  Delivery delivery;
  switch (transport_.try_receive(context_, delivery)) {
    case ReceiveResult::kNothing:
      return Taken::kNothing;
    case ReceiveResult::kEnd:
      return Taken::kEnd;
    case ReceiveResult::kMessage:
      break;
  }
  // The verified copy, in memory that no peer can write.
  const std::span payload(delivery.data, delivery.bytes);
  const auto header = trusted::read_header(AttestedTransport::record_around(payload));
  const bool inside =
      header->slot == kMemory && fits(header->offset, payload.size(), memory_.size());
  if (inside) {
    const auto place = std::span(memory_).subspan(header->offset, payload.size());
    std::ranges::copy(payload, place.begin());
    changed = place;
  } else {
    broken_ = "wrote " + std::to_string(payload.size()) + " bytes at " +
              std::to_string(header->offset) + " of a memory of " + std::to_string(memory_.size());
  }
  transport_.release(delivery);
  if (!inside) throw nonsense(broken_);
  return Taken::kWrite;
}

std::uint64_t VerifiedMemory::publish(std::uint64_t offset, std::span<const std::byte> bytes) {
  const std::size_t record_bytes = bytes.size() + kRecordOverheadBytes;
  check_place("publishing a record", offset, record_bytes, published_bytes_);
  AttestationKernel& kernel = transport_.session().kernel();
  if (bytes.size() > kernel.max_payload_bytes())
    throw Error(ErrorCode::kTooLarge, "the attestation kernel takes no payload of " +
                                          std::to_string(bytes.size()) + " bytes, at most " +
                                          std::to_string(kernel.max_payload_bytes()));
  trusted::Proof proof;
  Verdict verdict = kernel.attest(
      {.session = trusted::detail::kPublishedSession, .kind = Kind::kRead, .offset = offset}, bytes,
      proof);
  RecordHeader header;
  if (verdict == Verdict::kOk) verdict = trusted::detail::parse_header(proof.header, header);
  if (verdict != Verdict::kOk)
    throw Error(ErrorCode::kUnavailable,
                "cannot attest what is published: " + std::string(to_string(verdict)),
                "Connect again.");
  trusted::write_record(proof, bytes, published_->memory().subspan(offset, record_bytes));
  return header.counter;
}

bool VerifiedMemory::try_prepare_read(std::uint64_t offset, std::size_t bytes) {
  const std::size_t record_bytes = bytes + kRecordOverheadBytes;
  check_place("reading a record", offset, record_bytes, peer_published_.bytes);
  if (reads_ == nullptr) throw no_reads();
  if (record_bytes > reads_->max_read_bytes())
    throw Error(
        ErrorCode::kTooLarge,
        "this device reads at most " + std::to_string(reads_->max_read_bytes()) + " bytes at once");
  // A read that was given up must not arrive in the memory of the next one.
  if (!reads_->try_finish_read()) return false;
  if (landing_ == nullptr || landing_->memory().size() < record_bytes)
    landing_ = reads_->allocate(std::bit_ceil(record_bytes), kLocalOnly);
  read_from_ = {peer_published_.address + offset, record_bytes, peer_published_.key};
  return true;
}

Verdict VerifiedMemory::judge(std::span<std::byte> bytes, std::uint64_t& floor) {
  const auto record = landing_->memory().first(read_from_.bytes);
  RecordHeader header;
  const Verdict format = trusted::detail::read_header(record, header);
  if (format != Verdict::kOk) return format;
  if (header.session != trusted::detail::kPublishedSession ||
      header.offset != read_from_.address - peer_published_.address)
    return Verdict::kSession;
  // This side's own record, which the peer could show.
  AttestationKernel& kernel = transport_.session().kernel();
  if (header.device == kernel.device()) return Verdict::kDevice;
  const Verdict verdict = kernel.verify_stateless(record, Kind::kRead);
  if (verdict != Verdict::kOk) return verdict;
  if (header.counter < floor) return Verdict::kCounter;
  floor = header.counter;
  std::ranges::copy(trusted::payload_of(record), bytes.begin());
  return Verdict::kOk;
}

}  // namespace leat::detail
