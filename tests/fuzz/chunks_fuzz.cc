// Transport chunked against a peer that writes what it likes into regions and counters, and
// announces what it likes. The first byte chooses the device's kind and where the setup is from;
// then come steps of one byte each: what, and from the bytes that follow its operands.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "fuzz/input.h"
#include "fuzz/property.h"
#include "leat/error.h"
#include "support/scripted_device.h"
#include "transport/chunked/chunked.h"
#include "transport/parts/sealed_word.h"

namespace {

using namespace leat::detail;

struct Setup {
  std::uint64_t region_address, region_bytes, credits_offset, first_units, others_units,
      region_count, receive_count, max_message_bytes;
  std::uint32_t region_key, verify;
};

constexpr std::size_t kMaxMessageBytes = 20'000;
constexpr RegionShape kShape{65, 2};  // of every context, on both sides

ChunkedOptions options(std::uint8_t choice) {
  ChunkedOptions options;
  options.mode = (choice & 2) != 0 ? ChunkMode::kHeader : ChunkMode::kInPlace;
  options.chunk_bytes = 4096;
  options.window = 2;
  options.region_bytes = 4096;
  options.region_count = kShape.count;
  options.max_message_bytes = kMaxMessageBytes;
  options.depths.receive_requests = 16;
  return options;
}

// The hostile peer, who follows the rules where that leads further.
class Peer {
 public:
  Peer(Script& script, const Setup& victim) : script_(script), victim_(victim) {}

  // A header that passes its check, where it is due; some of its numbers from the input.
  void announce(Input& input) {
    const Context context = input.next<std::uint8_t>() % 3;
    Sender& sender = senders_[context];
    ChunkHeader header;
    header.length = input.next<std::uint16_t>() % 4200;
    header.count = 1 + input.next<std::uint8_t>() % 6;
    header.total = header.length * header.count;
    header.transfer = sender.transfer;
    if (sender.sequence != 0) header = sender.last;
    header.sequence = sender.sequence;
    // Now and then a lie.
    const auto lie = input.next<std::uint8_t>();
    if (lie == 1) header.transfer = input.next<std::uint8_t>();
    if (lie == 2) header.sequence = input.next<std::uint8_t>();
    if (lie == 3) header.count = input.next<std::uint32_t>();
    if (lie == 4) header.length = input.next<std::uint64_t>();
    if (lie == 5) header.total = input.next<std::uint64_t>();
    if (lie == 6) header.count = ChunkHeader::kTakenBack;
    header.check = check_of(header);
    const std::uint64_t units =
        RegionShape::units_of(std::min<std::uint64_t>(header.length, kShape.part_bytes()));
    const std::uint64_t at = kShape.position(sender.used, units);
    sender.used = at + units;
    sender.last = header;
    if (header.count == ChunkHeader::kTakenBack || ++sender.sequence >= header.count) {
      sender.sequence = 0;
      ++sender.transfer;
    }
    const std::uint64_t unit = context * kShape.units() + at % kShape.units();
    std::memcpy(memory() + unit * kPlaceUnitBytes, &header, sizeof header);
    say(encode({context, static_cast<std::uint32_t>(unit)}));
  }
  void say(std::uint32_t immediate) {
    script_.arrivals.push_back({.kind = CompletionKind::kImmediate, .immediate = immediate});
  }
  void write(std::size_t at, std::byte value) { memory()[at % victim_.region_bytes] = value; }
  void credit(std::size_t at, std::uint32_t count) {
    const std::uint64_t word = sealed(count);
    std::memcpy(memory() + victim_.credits_offset + at % 24 * sizeof word, &word, sizeof word);
  }
  std::byte* memory() const { return reinterpret_cast<std::byte*>(victim_.region_address); }
  std::byte* end() const { return memory() + victim_.credits_offset; }

 private:
  struct Sender {
    std::uint32_t transfer = 0;
    std::uint32_t sequence = 0;
    std::uint64_t used = 0;
    ChunkHeader last;
  };
  Script& script_;
  const Setup victim_;
  std::array<Sender, 3> senders_;
};

// The setup that leat would send with the same options, for memory that does not exist.
Setup sound_setup(const Setup& victim) {
  Setup setup = victim;
  setup.region_address = 4096;
  return setup;
}

void use(Input& input, ChunkedTransport& transport, Peer& peer) {
  static const std::vector<std::byte> message(kMaxMessageBytes + 1);
  std::vector<Delivery> held;
  while (!input.empty()) {
    const auto what = input.next<std::uint8_t>();
    const Context context = what / 16 % 3;
    switch (what % 8) {
      case 0:
        peer.announce(input);
        break;
      case 1:
        peer.write(input.next<std::uint32_t>(), input.next<std::byte>());
        break;
      case 2:
        peer.say(input.next<std::uint32_t>());
        break;
      case 3:
        peer.credit(input.next<std::uint8_t>(), input.next<std::uint16_t>());
        break;
      case 4: {
        Delivery delivery;
        if (transport.try_receive(context, delivery) != ReceiveResult::kMessage) break;
        require(delivery.bytes <= kMaxMessageBytes, "no message is above max_message_bytes");
        if (!delivery.must_release) break;
        require(delivery.data >= peer.memory() && delivery.data + delivery.bytes <= peer.end(),
                "a message is within the regions");
        for (const Delivery& other : held)
          require(delivery.data + delivery.bytes <= other.data ||
                      other.data + other.bytes <= delivery.data,
                  "messages that are held do not overlap");
        held.push_back(std::move(delivery));
        break;
      }
      case 5:
        if (held.empty()) break;
        std::swap(held[what / 16 % held.size()], held.back());
        transport.release(held.back());
        held.pop_back();
        break;
      case 6:
        (void)transport.try_send(
            std::span(message).first(input.next<std::uint16_t>() % message.size()), context);
        break;
      default:
        (void)transport.try_flush();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const auto choice = input.next<std::uint8_t>();
  Script script;
  if ((choice & 1) != 0) script.limits.max_inline_bytes = std::size_t{1} << 20;  // runs at once
  Setup peers{};
  script.posted = [&](const SendRequest& request) {
    const std::uint64_t offset = request.remote_address - peers.region_address;
    require(offset <= peers.region_bytes && request.bytes <= peers.region_bytes - offset,
            "we write only into the peer's region");
  };
  ChunkedTransport transport(scripted_device(script), scripted_queue_pair(script), options(choice));
  Setup own{};
  const std::vector<std::byte> said = transport.setup();
  require(said.size() == sizeof own, "the setup is as docs/wire_format.md has it");
  std::memcpy(&own, said.data(), sizeof own);
  peers = (choice & 12) == 12 ? input.next<Setup>() : sound_setup(own);
  try {
    transport.start(std::as_bytes(std::span(&peers, 1)));
    Peer peer(script, own);
    use(input, transport, peer);
  } catch (const leat::Error& error) {
    using leat::ErrorCode;
    require(error.code() == ErrorCode::kProtocol || error.code() == ErrorCode::kTooLarge ||
                error.code() == ErrorCode::kInvalidArgument,
            "nonsense is an error that says so");
  }
  return 0;
}
