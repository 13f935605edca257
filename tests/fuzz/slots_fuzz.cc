// The receiver's end of transport batched against a peer that writes what it likes into slots and
// bitmaps, and announces what it likes. The first byte chooses the number of slots; then come steps
// of one byte each: what, and from the bytes that follow its operands.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "fuzz/input.h"
#include "fuzz/property.h"
#include "transport/batched/bundle.h"
#include "transport/batched/slot_receiver.h"

namespace {

using namespace leat::detail;

constexpr std::uint64_t kKey = 99;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const unsigned slots = 16 + input.next<std::uint8_t>() % 113;
  const SlotLayout layout(64, slots, sizeof(SlotFront));
  // Only the slots of context 0: AddressSanitizer sees what goes beyond them.
  std::vector<std::byte> memory(layout.offset(0, slots));
  SlotReceiver receiver(layout, 0, memory.data(), kKey);
  std::vector<SlotRun> held;
  std::uint32_t found = 0;
  std::uint32_t taken = 0;
  bool known = false;
  while (!input.empty()) {
    const char* why = nullptr;
    switch (input.next<std::uint8_t>() % 8) {
      case 0: {  // a header that passes its check
        SlotFront front;
        SlotHeader& header = front.echo.header;
        front.echo.bits = input.next<std::uint64_t>();
        const unsigned slot = input.next<std::uint8_t>() % slots;
        header.sequence = input.next<std::uint8_t>();
        header.place = input.next<std::uint8_t>();
        // Which kind, the upper bits of what a receiver does not look at say.
        header.size =
            sized(input.next<std::uint16_t>(), static_cast<SlotKind>(front.echo.bits >> 6 & 3));
        header.check = check_of(front.echo, kKey);
        std::memcpy(memory.data() + layout.offset(0, slot), &front, sizeof front);
        break;
      }
      case 1: {  // any bytes
        const std::size_t at = input.next<std::uint16_t>() % memory.size();
        memory[at] = input.next<std::byte>();
        break;
      }
      case 2: {  // a word, any bits
        const unsigned word = input.next<std::uint8_t>() % layout.words(0);
        Echo echo{input.next<std::uint64_t>(), {.place = input.next<std::uint8_t>()}};
        echo.header.check = check_of(echo, kKey);
        why = receiver.see(word, echo, found);
        break;
      }
      case 3: {
        const unsigned slot = input.next<std::uint8_t>() % slots;
        const std::uint32_t place = input.next<std::uint8_t>();
        why = receiver.notified(slot, place, input.next<std::uint16_t>(), found, known);
        break;
      }
      case 4:
        why = receiver.landed(input.next<std::uint32_t>(), found);
        break;
      case 5:
        why = receiver.look_done();
        break;
      case 6:
        if (receiver.waiting()) {
          const SlotOrder::Entry entry = receiver.take();
          ++taken;
          const std::byte* bytes = receiver.bytes_of(entry.run);
          require(bytes >= memory.data() && bytes + entry.bytes <= memory.data() + memory.size(),
                  "a message is within the slots");
          require(entry.run.first + entry.run.count <= slots, "a run is within the set");
          if (entry.kind == SlotKind::kBundle) {
            require(entry.run.count == 1, "a bundle has one slot");
            BundleReader messages(bytes, 0, entry.bytes);
            std::span<const std::byte> message;
            while (!messages.empty() && messages.next(message))
              require(message.data() >= bytes && message.size() <= entry.bytes &&
                          message.data() + message.size() <= bytes + entry.bytes,
                      "a message is within its bundle");
          }
          for (const SlotRun& other : held) {
            require(other.word() != entry.run.word() || (other.bits() & entry.run.bits()) == 0,
                    "a slot that is held is not handed out again");
          }
          held.push_back(entry.run);
        }
        break;
      default:
        if (!held.empty()) {
          receiver.release(held.back());
          held.pop_back();
        }
    }
    if (why != nullptr) return 0;  // the channel is in error
  }
  require(taken <= found, "nothing is handed out that was not found");
  return 0;
}
