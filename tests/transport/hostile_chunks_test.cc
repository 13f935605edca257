// Transport chunked against a peer that does not run leat: a bare queue pair that writes what it
// likes into regions and counters, as docs/wire_format.md places them. Whatever it does is an error
// of that channel; nothing that was not sent is handed out.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "leat/error.h"
#include "support/devices.h"
#include "support/verbs_side.h"
#include "transport/chunked/chunked.h"
#include "transport/chunked/header.h"
#include "transport/parts/immediate.h"
#include "transport/parts/sealed_word.h"

namespace leat::detail {
namespace {

constexpr std::size_t kChunkedRegionBytes = 4096;
constexpr std::uint64_t kRegionUnits = 65;  // and a header
constexpr std::uint64_t kChunkedRegions = 2;
constexpr std::uint64_t kChunkedReceives = 64;

struct ChunkedSetup {
  std::uint64_t region_address, region_bytes, credits_offset, first_units, others_units,
      region_count, receive_count, max_message_bytes;
  std::uint32_t region_key, verify;
};

ChunkedSetup sound_setup() {
  ChunkedSetup blob{};
  blob.first_units = blob.others_units = kRegionUnits;
  blob.region_count = kChunkedRegions;
  blob.receive_count = kChunkedReceives;
  blob.max_message_bytes = 1 << 20;
  blob.credits_offset = kContextCount * kChunkedRegions * kRegionUnits * kPlaceUnitBytes;
  blob.region_bytes = blob.credits_offset + 192;
  return blob;
}

std::string word_of(const ChunkedSetup& blob) {
  return {reinterpret_cast<const char*>(&blob), sizeof blob};
}

// A transfer of one part, and what a leat would say of it.
ChunkHeader whole(std::uint64_t bytes) {
  ChunkHeader header;
  header.length = header.total = bytes;
  return header;
}

// The hostile side: its own region, and the victim's.
class HostileChunked {
 public:
  HostileChunked(VerbsSide& side, const ChunkedSetup& victim)
      : side_(side),
        victim_(victim),
        own_(side.allocate(sound_setup().region_bytes, kRemoteRead | kRemoteWrite)),
        source_(side.allocate(4096, kLocalOnly)) {
    side.post_receives(kChunkedReceives);
  }

  std::string setup() const {
    ChunkedSetup blob = sound_setup();
    blob.region_address = own_.remote().address;
    blob.region_key = own_.remote().key;
    return word_of(blob);
  }
  // Bytes of the victim's region.
  template <typename Value>
  void write(std::size_t offset, const Value& value) {
    std::memcpy(source_.memory().data(), &value, sizeof value);
    side_.complete(write_request({source_, 0, victim(), offset, sizeof value}));
  }
  void say(std::uint32_t immediate) {
    SendRequest request = immediate_request(immediate);
    request.remote_address = victim_.region_address;
    request.remote_key = victim_.region_key;
    side_.complete(request);
  }
  // A header with a right check at `unit` of context 0.
  void announce(ChunkHeader header, std::uint32_t unit = 0, Context context = 0) {
    header.check = check_of(header);
    write(std::size_t{unit} * kPlaceUnitBytes, header);
    say(encode({context, unit}));
  }
  void credit(std::size_t word, std::uint32_t count) {
    write(victim_.credits_offset + word, sealed(count));
  }

 private:
  RemoteRegion victim() const {
    return {victim_.region_address, victim_.region_bytes, victim_.region_key};
  }
  VerbsSide& side_;
  const ChunkedSetup victim_;
  const MemoryRegion& own_;
  const MemoryRegion& source_;
};

ChunkedOptions small_options() {
  ChunkedOptions options;
  options.region_bytes = kChunkedRegionBytes;
  options.region_count = kChunkedRegions;
  options.max_message_bytes = 1 << 20;
  options.depths.receive_requests = kChunkedReceives;
  return options;
}

class HostileToChunked : public VerbsTest {
 protected:
  // `attack` runs, then `use` until it throws, which must be kProtocol.
  void expect_protocol_error(const std::function<void(HostileChunked&)>& attack,
                             const std::function<void(Transport&)>& use,
                             const ChunkedOptions& chunked = small_options()) const {
    VerbsOptions options;
    options.depths.receive_requests = kChunkedReceives;
    run(
        [&](VerbsSide& side) {
          ChunkedTransport transport(std::move(side.device), std::move(side.queue_pair), chunked);
          const auto setup = transport.setup();
          side.peer.tell({reinterpret_cast<const char*>(setup.data()), setup.size()});
          const std::string theirs = side.peer.hear();
          transport.start(std::as_bytes(std::span(theirs)));
          side.peer.tell("started");
          side.peer.hear("attacked");
          const auto attempt = [&] {
            const Deadline deadline = hang_deadline();
            while (!passed(deadline)) use(transport);
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
          const std::string theirs = side.peer.hear();
          ChunkedSetup victim;
          ASSERT_EQ(theirs.size(), sizeof victim);
          std::memcpy(&victim, theirs.data(), sizeof victim);
          HostileChunked hostile(side, victim);
          side.peer.tell(hostile.setup());
          side.peer.hear("started");
          attack(hostile);
          side.peer.tell("attacked");
          side.peer.hear("done");
        },
        options);
  }
  // What was written is refused by the receiver.
  void expect_refused(const std::function<void(HostileChunked&)>& attack,
                      const ChunkedOptions& chunked = small_options()) const {
    expect_protocol_error(attack, receive_nothing, chunked);
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

TEST_P(HostileToChunked, HeaderThatWasNeverWritten) {
  expect_refused([](HostileChunked& hostile) { hostile.say(encode({0, 0})); });
}

TEST_P(HostileToChunked, HeaderWithAWrongCheck) {
  expect_refused([](HostileChunked& hostile) {
    hostile.write(0, whole(10));
    hostile.say(encode({0, 0}));
  });
}

TEST_P(HostileToChunked, PlaceOutsideOfItsRegions) {
  expect_refused([](HostileChunked& hostile) {
    hostile.say(encode({0, kChunkedRegions * kRegionUnits}));
  });
}

TEST_P(HostileToChunked, PlaceOfAnotherContext) {
  expect_refused([](HostileChunked& hostile) { hostile.announce(whole(10), 0, 3); });
}

TEST_P(HostileToChunked, PlaceOutsideOfAllMemory) {
  expect_refused([](HostileChunked& hostile) { hostile.say(encode({15, kMaxPlace})); });
}

TEST_P(HostileToChunked, PlaceThatIsNotDue) {
  expect_refused([](HostileChunked& hostile) { hostile.announce(whole(10), 1); });
}

TEST_P(HostileToChunked, StaleTransfer) {
  expect_refused([](HostileChunked& hostile) {
    ChunkHeader header = whole(10);
    header.transfer = 7;
    hostile.announce(header);
  });
}

// Each lies where the next one is due, so that only its numbers are wrong.
TEST_P(HostileToChunked, TransferTwice) {
  expect_protocol_error(
      [](HostileChunked& hostile) {
        hostile.announce(whole(10), 0);
        hostile.announce(whole(10), 2);
      },
      [](Transport& transport) {
        Delivery delivery;
        while (transport.try_receive(0, delivery) == ReceiveResult::kMessage)
          EXPECT_EQ(delivery.bytes, 10u);
      });
}

TEST_P(HostileToChunked, PartTwice) {
  expect_refused([](HostileChunked& hostile) {
    ChunkHeader header = whole(1000);
    header.total = 3000;
    header.count = 3;
    hostile.announce(header, 0);
    hostile.announce(header, 17);
  });
}

// It announces a third region's worth, while both are in use.
TEST_P(HostileToChunked, PlaceThatIsStillInUse) {
  unsigned received = 0;
  expect_protocol_error(
      [](HostileChunked& hostile) {
        ChunkHeader header = whole(kChunkedRegionBytes);
        for (std::uint32_t i = 0; i < 3; ++i) {
          header.transfer = i;
          hostile.announce(header, i % kChunkedRegions * kRegionUnits);
        }
      },
      [&](Transport& transport) {
        Delivery kept;  // for good
        while (transport.try_receive(0, kept) == ReceiveResult::kMessage) ++received;
        EXPECT_LE(received, kChunkedRegions);
      });
}

TEST_P(HostileToChunked, LengthBeyondItsRegion) {
  expect_refused([](HostileChunked& hostile) { hostile.announce(whole(kChunkedRegionBytes + 1)); });
}

TEST_P(HostileToChunked, LengthBeyondEverything) {
  expect_refused([](HostileChunked& hostile) { hostile.announce(whole(UINT64_MAX)); });
}

TEST_P(HostileToChunked, TransferAboveTheLimit) {
  expect_refused([](HostileChunked& hostile) {
    ChunkHeader header = whole(4096);
    header.total = std::uint64_t{1} << 40;
    header.count = 1U << 28;
    hostile.announce(header);
  });
}

TEST_P(HostileToChunked, ImpossibleCount) {
  expect_refused([](HostileChunked& hostile) {
    ChunkHeader header = whole(100);
    header.count = 5;
    hostile.announce(header);
  });
}

TEST_P(HostileToChunked, PartOfATransferThatWasTakenBack) {
  expect_refused([](HostileChunked& hostile) {
    ChunkHeader header = whole(1000);
    header.total = 3000;
    header.count = 3;
    hostile.announce(header);
    header.sequence = 1;
    header.count = ChunkHeader::kTakenBack;
    header.length = 0;
    hostile.announce(header, 17);
    header.sequence = 2;
    header.count = 3;
    header.length = 1000;
    hostile.announce(header, 18);
  });
}

TEST_P(HostileToChunked, TransferTakenBackOutOfItsTurn) {
  expect_refused([](HostileChunked& hostile) {
    ChunkHeader header = whole(0);
    header.sequence = 1;
    header.count = ChunkHeader::kTakenBack;
    hostile.announce(header);
  });
}

TEST_P(HostileToChunked, TransferTakenBackBeyondItsRegion) {
  expect_refused([](HostileChunked& hostile) {
    ChunkHeader header = whole(UINT64_MAX);
    header.count = ChunkHeader::kTakenBack;
    hostile.announce(header);
  });
}

TEST_P(HostileToChunked, MessageAfterItsEnd) {
  expect_protocol_error(
      [](HostileChunked& hostile) {
        hostile.say(encode({0, kEndPlace}));
        hostile.say(encode({0, kEndPlace}));
      },
      [](Transport& transport) {
        Delivery delivery;
        EXPECT_NE(transport.try_receive(0, delivery), ReceiveResult::kMessage);
      });
}

TEST_P(HostileToChunked, DigestThatDiffers) {
  ChunkedOptions verify = small_options();
  verify.verify = true;
  expect_refused([](HostileChunked& hostile) { hostile.announce(whole(100)); }, verify);
}

// The victim looks when its own count says that there is no room left.
TEST_P(HostileToChunked, RoomGivenBackThatItNeverHad) {
  expect_protocol_error([](HostileChunked& hostile) { hostile.credit(64, 1 << 20); }, send);
}

TEST_P(HostileToChunked, MoreTakenThanWasSent) {
  expect_protocol_error([](HostileChunked& hostile) { hostile.credit(0, 1 << 20); },
                        [](Transport& transport) {
                          for (Context context = 0; context < kContextCount; ++context)
                            (void)transport.try_send({}, context);
                        });
}

LEAT_INSTANTIATE_ON_DEVICES(HostileToChunked);

// A setup may be anything.
class HostileSetup : public VerbsTest {};

TEST_P(HostileSetup, ThatContradictsItselfIsRefused) {
  const std::vector<std::function<void(ChunkedSetup&)>> lies = {
      [](ChunkedSetup& blob) { blob.first_units = 0; },
      [](ChunkedSetup& blob) { blob.first_units = UINT64_MAX; },
      [](ChunkedSetup& blob) { blob.others_units = 1; },
      [](ChunkedSetup& blob) { blob.others_units = std::uint64_t{1} << 40; },
      [](ChunkedSetup& blob) { blob.region_count = 0; },
      [](ChunkedSetup& blob) { blob.region_count = 1; },
      [](ChunkedSetup& blob) { blob.region_count = UINT64_MAX; },
      [](ChunkedSetup& blob) { blob.receive_count = 0; },
      [](ChunkedSetup& blob) { blob.max_message_bytes = 0; },
      [](ChunkedSetup& blob) { blob.credits_offset = 64; },
      [](ChunkedSetup& blob) { blob.credits_offset += 4; },
      [](ChunkedSetup& blob) { blob.credits_offset = UINT64_MAX - 7; },
      [](ChunkedSetup& blob) { blob.region_bytes = 100; },
      [](ChunkedSetup& blob) { blob.region_address = UINT64_MAX - 100; },
      [](ChunkedSetup& blob) { blob.verify = 2; },
  };
  const auto refuses = [](VerbsSide& side, const std::function<void(ChunkedTransport&)>& start) {
    ChunkedTransport transport(std::move(side.device), std::move(side.queue_pair), small_options());
    try {
      start(transport);
      ADD_FAILURE() << "it was believed";
    } catch (const Error& error) {
      EXPECT_EQ(to_string(error.code()), to_string(ErrorCode::kProtocol)) << error.what();
    }
  };
  VerbsOptions options;
  options.depths.receive_requests = kChunkedReceives;
  for (const auto& lie : lies) {
    run_both(
        [&](VerbsSide& side) {
          refuses(side, [&](ChunkedTransport& transport) {
            ChunkedSetup blob = sound_setup();
            lie(blob);
            transport.start(std::as_bytes(std::span(&blob, 1)));
          });
        },
        options);
  }
  run_both(
      [&](VerbsSide& side) {
        refuses(side, [](ChunkedTransport& transport) {
          const std::array<std::byte, 10> bytes{};
          transport.start(bytes);
        });
      },
      options);
}

LEAT_INSTANTIATE_ON_DEVICES(HostileSetup);

}  // namespace
}  // namespace leat::detail
