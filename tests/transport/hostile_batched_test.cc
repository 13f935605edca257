// Transport batched against a peer that does not run leat: a bare queue pair that writes what it
// likes into slots, bitmaps and counters, as docs/wire_format.md places them. Whatever it does is
// an error of that channel; nothing that was not sent is handed out.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "handshake/connection.h"
#include "leat/error.h"
#include "support/channel_side.h"
#include "support/devices.h"
#include "support/verbs_side.h"
#include "transport/batched/batched.h"
#include "transport/batched/bundle.h"
#include "transport/batched/slot_receiver.h"
#include "transport/parts/sealed_word.h"

namespace leat::detail {
namespace {

constexpr std::size_t kSlotBytes = 256;
constexpr unsigned kSlots = 16;
constexpr std::size_t kHeaders = 2176;
constexpr std::size_t kPulled = kHeaders + kMaxAllSlots * sizeof(SlotHeader);
constexpr std::size_t kHeadBytes = (kPulled + 8 + kMostBundleBytes + 63) / 64 * 64;
constexpr std::size_t kPosted = 0, kFilled = 8, kGiven = 776, kNotifyLimit = 1024, kLanded = 1088;

struct BatchedSetup {
  std::uint64_t region_address, region_bytes, slot_bytes, slot_count, max_message_bytes, header_key;
  std::uint32_t region_key;
  std::uint16_t header_bytes;
  std::uint8_t shares_memory, asymmetric_barriers;
  std::uint64_t mirror_address, mirror_bytes;
  std::uint32_t mirror_key, unused;
};

// The hostile side: its own region, which its victim reads, and the victim's.
class HostileBatched {
 public:
  static constexpr std::size_t kShortMirrorBytes = 4096;

  // `shares`: where both could, memory. `mirror_bytes`: of what the victim may read; 0: all slots.
  HostileBatched(VerbsSide& side, const BatchedSetup& victim, bool shares,
                 std::size_t mirror_bytes = 0)
      : layout(kSlotBytes, kSlots, shares && victim.shares_memory != 0 ? 0 : sizeof(SlotFront)),
        side_(side),
        victim_(victim),
        shares_(shares),
        own_(side.allocate(kHeadBytes + layout.bytes(), kRemoteRead | kRemoteWrite)),
        mirror_(side.allocate(mirror_bytes == 0 ? layout.bytes() : mirror_bytes, kRemoteRead)),
        source_(side.allocate(4096, kLocalOnly)) {}

  std::string setup() const {
    const BatchedSetup blob{own_.remote().address,
                            own_.remote().bytes,
                            kSlotBytes,
                            kSlots,
                            1 << 20,
                            7,
                            own_.remote().key,
                            sizeof(SlotFront),
                            shares_,
                            0,
                            mirror_.remote().address,
                            layout.bytes(),
                            mirror_.remote().key,
                            0};
    return {reinterpret_cast<const char*>(&blob), sizeof blob};
  }
  // A word of our own head.
  void set(std::size_t offset, std::uint64_t value) {
    auto* word = reinterpret_cast<std::uint64_t*>(own_.memory().data() + offset);
    std::atomic_ref(*word).store(value, std::memory_order_release);
  }
  // Bytes of the victim's region.
  template <typename Value>
  void write(std::size_t offset, const Value& value) {
    std::memcpy(source_.memory().data(), &value, sizeof value);
    side_.complete(write_request({source_, 0, victim(), offset, sizeof value}));
  }
  void fill(unsigned slot, SlotHeader header) {
    if (layout.header_bytes() == 0) {
      header.check = check_of(header, victim_.header_key);
      return write(kHeaders + slot * sizeof header, header);
    }
    write(kHeadBytes + layout.offset(0, slot), SlotFront{whole({0, header})});
  }
  // The first word of our bitmap, as the victim reads it.
  void mark(std::uint64_t bits) {
    if (layout.header_bytes() == 0) return set(kFilled, bits);
    const auto words = std::bit_cast<EchoWords>(whole({bits, {}}));
    for (std::size_t i = 0; i < words.size(); ++i) set(kFilled + i * sizeof words[i], words[i]);
  }
  // What an open bundle in that slot is made of, where the victim will look for it. `units`: before
  // it.
  void open(unsigned slot, std::uint64_t size_of_message, std::size_t bytes,
            std::uint32_t units = 0) {
    const std::size_t at = layout.offset(0, slot);
    if (layout.header_bytes() == 0) {
      write(kHeadBytes + at, size_of_message);
    } else {
      const std::array<std::uint64_t, 2> words{sealed(units), size_of_message};
      std::memcpy(mirror_.memory().data() + at + offsetof(SlotFront, place), &words, sizeof words);
    }
    set(kPosted, Posted{units, slot, bytes}.word());
  }
  // So many messages of 64 bytes in an open bundle that cannot be shared.
  void open_full(unsigned slot, std::size_t messages) {
    std::byte* place = mirror_.memory().data() + layout.offset(0, slot);
    for (std::size_t i = 0; i < messages; ++i) {
      const std::uint64_t size = sealed(64);
      std::memcpy(place + sizeof(SlotFront) + i * Bundled::taken(64), &size, sizeof size);
    }
    open(slot, sealed(64), messages * Bundled::taken(64));
  }
  // An open bundle where the mirror, in spite of what setup() says, has ended.
  void open_beyond_the_mirror(unsigned slot, std::size_t bytes) {
    set(kPosted, Posted{0, slot, bytes}.word());
  }
  void notify(std::uint32_t immediate) {
    SendRequest request = immediate_request(immediate);
    request.remote_address = victim_.region_address;
    request.remote_key = victim_.region_key;
    side_.complete(request);
  }

  const SlotLayout layout;

 private:
  Echo whole(Echo echo) const {
    echo.header.check = check_of(echo, victim_.header_key);
    return echo;
  }
  RemoteRegion victim() const {
    return {victim_.region_address, victim_.region_bytes, victim_.region_key};
  }
  VerbsSide& side_;
  const BatchedSetup victim_;
  const bool shares_;
  const MemoryRegion& own_;
  const MemoryRegion& mirror_;
  const MemoryRegion& source_;
};

class HostileToBatched : public VerbsTest {
 protected:
  static constexpr std::size_t kMostBytes = 1 << 20;
  std::size_t most_bytes_ = kMostBytes;  // of a message, for the victim

  // At the victim's side: its transport, and the setup of the hostile one.
  static std::unique_ptr<Transport> make_unstarted(VerbsSide& side, bool shares,
                                                   std::size_t most_bytes, std::string& theirs) {
    SlotOptions slots;
    slots.slot_bytes = kSlotBytes;
    slots.slot_count = kSlots;
    slots.max_message_bytes = most_bytes;
    auto make = make_batched_by_requests;
    if (shares) make = make_batched;
    auto transport = make(std::move(side.device), std::move(side.queue_pair), slots);
    const auto setup = transport->setup();
    side.peer.tell({reinterpret_cast<const char*>(setup.data()), setup.size()});
    theirs = side.peer.hear();
    return transport;
  }
  static std::unique_ptr<Transport> make_victim(VerbsSide& side, bool shares,
                                                std::size_t most_bytes = kMostBytes) {
    std::string theirs;
    auto transport = make_unstarted(side, shares, most_bytes, theirs);
    transport->start(std::as_bytes(std::span(theirs)));
    side.peer.tell("started");
    return transport;
  }
  // At the other one.
  static std::unique_ptr<HostileBatched> make_hostile(VerbsSide& side, bool shares,
                                                      std::size_t mirror_bytes = 0) {
    const std::string theirs = side.peer.hear();
    BatchedSetup victim;
    if (theirs.size() != sizeof victim) throw std::runtime_error("not the setup of batched");
    std::memcpy(&victim, theirs.data(), sizeof victim);
    auto hostile = std::make_unique<HostileBatched>(side, victim, shares, mirror_bytes);
    side.peer.tell(hostile->setup());
    side.peer.hear("started");
    return hostile;
  }
  // `attack` runs, then `use` until it throws, which must be kProtocol.
  void expect_protocol_error(const std::function<void(HostileBatched&)>& attack,
                             const std::function<void(Transport&)>& use) const {
    for (const bool shares : {false, true}) expect_protocol_error(attack, use, shares);
  }
  void expect_protocol_error(const std::function<void(HostileBatched&)>& attack,
                             const std::function<void(Transport&)>& use, bool shares) const {
    SCOPED_TRACE(shares ? "memory shared where it can be" : "memory not shared");
    VerbsOptions options;
    options.depths.receive_requests = 256;
    run(
        [&](VerbsSide& side) {
          const auto transport = make_victim(side, shares, most_bytes_);
          side.peer.hear("attacked");
          const auto attempt = [&] {
            const Deadline deadline = hang_deadline();
            while (!passed(deadline)) use(*transport);
            FAIL() << "no error";
          };
          for (int i = 0; i < 2; ++i) {
            try {
              attempt();
            } catch (const Error& error) {
              EXPECT_EQ(to_string(error.code()), to_string(ErrorCode::kProtocol)) << error.what();
            }
          }
          side.peer.tell("done");
        },
        [&](VerbsSide& side) {
          const auto hostile = make_hostile(side, shares);
          attack(*hostile);
          side.peer.tell("attacked");
          side.peer.hear("done");
        },
        options);
  }

  static void receive_nothing(Transport& transport) {
    Delivery delivery;
    EXPECT_NE(transport.try_receive(0, delivery), ReceiveResult::kMessage);
  }
  static void send(Transport& transport) {
    const std::array<std::byte, 100> message{};
    (void)transport.try_send(message, 0);
  }
};

TEST_P(HostileToBatched, BitWithoutAMessage) {
  expect_protocol_error(
      [](HostileBatched& hostile) {
        hostile.mark(1);
        hostile.set(kPosted, 1);
      },
      receive_nothing);
}

TEST_P(HostileToBatched, BitOfNoSlot) {
  expect_protocol_error(
      [](HostileBatched& hostile) {
        hostile.mark(1ULL << 40);
        hostile.set(kPosted, 1);
      },
      receive_nothing);
}

TEST_P(HostileToBatched, LengthBeyondTheSlots) {
  expect_protocol_error(
      [](HostileBatched& hostile) {
        hostile.fill(0, {.size = 1 << 20, .sequence = 1});
        hostile.mark(1);
        hostile.set(kPosted, 1);
      },
      receive_nothing);
}

TEST_P(HostileToBatched, LengthAboveTheLimit) {
  for (const std::size_t most : {10, 100}) {
    most_bytes_ = most;
    expect_protocol_error(
        [most](HostileBatched& hostile) {
          hostile.fill(0, {.size = sized(most + 1, SlotKind::kMessage), .sequence = 1});
          hostile.mark(1);
          hostile.set(kPosted, 1);
        },
        receive_nothing);
  }
}

TEST_P(HostileToBatched, LengthAboveTheLimitInABundle) {
  most_bytes_ = 40;
  expect_protocol_error(
      [](HostileBatched& hostile) {
        hostile.write(kHeadBytes + hostile.layout.header_bytes(), sealed(41));
        hostile.fill(0, {.size = sized(Bundled::taken(41), SlotKind::kBundle), .sequence = 1});
        hostile.mark(1);
        hostile.set(kPosted, 1);
      },
      receive_nothing);
}

void leave_a_gap(HostileBatched& hostile) {
  hostile.fill(0, {.place = 1, .size = 10, .sequence = 2});
  hostile.mark(1);
  hostile.set(kPosted, 1);
}

// By requests what is missing may still come, so nothing is handed out and nothing fails. Late
// devices share no memory.
TEST_P(HostileToBatched, SequenceGap) {
  const auto device = open_device(device_name(), device_address(device_name()));
  if (device->limits().shares_memory) expect_protocol_error(leave_a_gap, receive_nothing, true);
  run(
      [](VerbsSide& side) {
        const auto transport = make_victim(side, false);
        side.peer.hear("attacked");
        for (unsigned looks = 0; looks < 10'000; ++looks) receive_nothing(*transport);
        side.peer.tell("done");
      },
      [](VerbsSide& side) {
        const auto hostile = make_hostile(side, false);
        leave_a_gap(*hostile);
        side.peer.tell("attacked");
        side.peer.hear("done");
      });
}

TEST_P(HostileToBatched, SequenceFarAhead) {
  expect_protocol_error(
      [](HostileBatched& hostile) {
        hostile.fill(0, {.place = 999, .size = 10, .sequence = 1000});
        hostile.mark(1);
        hostile.set(kPosted, 1);
      },
      receive_nothing);
}

TEST_P(HostileToBatched, TheSamePlaceTwice) {
  expect_protocol_error(
      [](HostileBatched& hostile) {
        hostile.fill(0, {.place = 1, .size = 10, .sequence = 2});
        hostile.fill(1, {.place = 1, .size = 10, .sequence = 2});
        hostile.mark(3);
        hostile.set(kPosted, 1);
      },
      receive_nothing);
}

TEST_P(HostileToBatched, EndThatSaysTooLittle) {
  expect_protocol_error(
      [](HostileBatched& hostile) {
        hostile.fill(0, {.size = sized(4, SlotKind::kEnd), .sequence = 1});
        hostile.mark(1);
        hostile.set(kPosted, 1);
      },
      receive_nothing);
}

TEST_P(HostileToBatched, AnnouncedSizeAboveTheLimit) {
  expect_protocol_error(
      [](HostileBatched& hostile) {
        hostile.write(kHeadBytes + hostile.layout.header_bytes(), std::uint64_t{1} << 60);
        hostile.fill(0, {.size = sized(8, SlotKind::kLargeStart), .sequence = 1});
        hostile.mark(1);
        hostile.set(kPosted, 1);
      },
      receive_nothing);
}

TEST_P(HostileToBatched, NothingToTakeBack) {
  expect_protocol_error(
      [](HostileBatched& hostile) {
        hostile.write(kHeadBytes + hostile.layout.header_bytes(), std::uint64_t{0});
        hostile.fill(0, {.size = sized(8, SlotKind::kLargeStart), .sequence = 1});
        hostile.mark(1);
        hostile.set(kPosted, 1);
      },
      receive_nothing);
}

TEST_P(HostileToBatched, MessageLongerThanItsBundle) {
  expect_protocol_error(
      [](HostileBatched& hostile) {
        hostile.write(kHeadBytes + hostile.layout.header_bytes(), sealed(57));
        hostile.fill(0, {.size = sized(64, SlotKind::kBundle), .sequence = 1});
        hostile.mark(1);
        hostile.set(kPosted, 1);
      },
      receive_nothing);
}

TEST_P(HostileToBatched, BundleBeyondItsSlot) {
  expect_protocol_error(
      [](HostileBatched& hostile) {
        hostile.fill(0, {.size = sized(2 * kSlotBytes, SlotKind::kBundle), .sequence = 1});
        hostile.mark(3);
        hostile.set(kPosted, 1);
      },
      receive_nothing);
}

TEST_P(HostileToBatched, MessageLongerThanItsOpenBundle) {
  expect_protocol_error([](HostileBatched& hostile) { hostile.open(3, sealed(~0U), 64); },
                        receive_nothing);
}

TEST_P(HostileToBatched, OpenBundleBeyondItsSlot) {
  expect_protocol_error([](HostileBatched& hostile) { hostile.open(3, sealed(8), 2 * kSlotBytes); },
                        receive_nothing);
}

TEST_P(HostileToBatched, OpenBundleWithinALargeMessage) {
  expect_protocol_error(
      [](HostileBatched& hostile) {
        hostile.write(kHeadBytes + hostile.layout.header_bytes(), std::uint64_t{100'000});
        hostile.fill(0, {.size = sized(8, SlotKind::kLargeStart), .sequence = 1});
        hostile.mark(1);
        hostile.open(3, sealed(8), 16, 1);
      },
      receive_nothing);
}

// Two sides of a device that shares memory both do so, or they do not understand each other.
TEST_P(HostileToBatched, SetupThatSharesNoMemory) {
  run(
      [](VerbsSide& side) {
        const bool shares = side.device->limits().shares_memory;
        std::string theirs;
        const auto transport = make_unstarted(side, true, kMostBytes, theirs);
        const auto start = [&] { transport->start(std::as_bytes(std::span(theirs))); };
        if (shares) {
          expect_error(ErrorCode::kProtocol, start);
        } else {
          start();
        }
        side.peer.tell("started");
      },
      [](VerbsSide& side) { make_hostile(side, false); });
}

// What was to be pulled and could not be is not there: what an earlier pull brought to that memory
// is not handed out once more.
TEST_P(HostileToBatched, OpenBundleThatCannotBeRead) {
  constexpr std::size_t kMessages = 4;
  run(
      [&](VerbsSide& side) {
        const auto transport = make_victim(side, false);
        side.peer.hear("opened");
        const Deadline deadline = hang_deadline();
        std::size_t messages = 0;
        const auto receive = [&] {
          Delivery delivery;
          if (transport->try_receive(0, delivery) == ReceiveResult::kMessage) ++messages;
        };
        while (messages < kMessages && !passed(deadline)) receive();
        side.peer.tell("got them");
        side.peer.hear("attacked");
        expect_error(ErrorCode::kPeerDied, [&] {
          while (!passed(deadline)) receive();
        });
        EXPECT_EQ(messages, kMessages);
        side.peer.tell("done");
      },
      [&](VerbsSide& side) {
        const auto hostile = make_hostile(side, false, HostileBatched::kShortMirrorBytes);
        hostile->open_full(3, kMessages);
        side.peer.tell("opened");
        side.peer.hear("got them");
        const auto last =
            static_cast<unsigned>(HostileBatched::kShortMirrorBytes / hostile->layout.offset(0, 1));
        hostile->open_beyond_the_mirror(last, kMessages * Bundled::taken(64));
        side.peer.tell("attacked");
        side.peer.hear("done");
      });
}

TEST_P(HostileToBatched, OpenBundleInNoSlot) {
  expect_protocol_error(
      [](HostileBatched& hostile) {
        hostile.set(kPosted, Posted{0, kMaxAllSlots, 64}.word());
      },
      receive_nothing);
}

TEST_P(HostileToBatched, DoorbellForNoSlot) {
  expect_protocol_error([](HostileBatched& hostile) { hostile.notify(doorbell_of(3000, 0)); },
                        receive_nothing);
}

TEST_P(HostileToBatched, DoorbellForAnEmptySlot) {
  expect_protocol_error([](HostileBatched& hostile) { hostile.notify(doorbell_of(3, 0)); },
                        receive_nothing);
}

TEST_P(HostileToBatched, DoorbellWithoutBeingAskedTo) {
  expect_protocol_error([](HostileBatched& hostile) { hostile.notify(doorbell_of(3, 9)); },
                        receive_nothing);
}

TEST_P(HostileToBatched, NumberOfLandedMessagesThatIsNone) {
  expect_protocol_error([](HostileBatched& hostile) { hostile.write(kLanded, std::uint64_t{5}); },
                        receive_nothing);
}

TEST_P(HostileToBatched, LimitOfDoorbellsThatIsImpossible) {
  expect_protocol_error(
      [](HostileBatched& hostile) { hostile.write(kNotifyLimit, std::uint64_t{5}); }, send);
  expect_protocol_error([](HostileBatched& hostile) { hostile.write(kNotifyLimit, sealed(1000)); },
                        send);
}

TEST_P(HostileToBatched, SlotsGivenBackThatWereNeverFilled) {
  expect_protocol_error([](HostileBatched& hostile) { hostile.set(kGiven, ~0ULL); }, send);
}

LEAT_INSTANTIATE_ON_DEVICES(HostileToBatched);

}  // namespace
}  // namespace leat::detail
