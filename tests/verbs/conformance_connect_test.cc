// What devices promise about offers and connections.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/system_error.h"
#include "leat/error.h"
#include "support/devices.h"
#include "support/leaks.h"
#include "support/users.h"
#include "support/verbs_side.h"
#include "verbs/table.h"

namespace leat::detail {
namespace {

using Blob = std::vector<std::byte>;

constexpr std::chrono::milliseconds kShort{50};
constexpr std::chrono::seconds kLong{5};

std::array<Fd, 2> stream_sockets() {
  std::array<int, 2> sockets{};
  check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()), "socketpair");
  return {Fd(sockets[0]), Fd(sockets[1])};
}

// A leat::Error of any code, or of one code, with a text.
void expect_error(const std::function<void()>& call, std::optional<ErrorCode> code = {}) {
  try {
    call();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    if (code) {
      EXPECT_EQ(to_string(error.code()), to_string(*code)) << error.what();
    }
    EXPECT_GT(std::string(error.what()).size(), 10u);
  }
}

// Blobs that are not the right one.
std::vector<Blob> junk_blobs(const Blob& right) {
  std::mt19937_64 random(7);
  const auto random_bytes = [&](std::size_t bytes) {
    Blob blob(bytes);
    for (std::byte& byte : blob) byte = static_cast<std::byte>(random());
    return blob;
  };
  std::vector<Blob> junk{{}, Blob(right.size()), Blob(right.size(), std::byte{0xff})};
  for (std::size_t bytes : {std::size_t{1}, right.size() / 2, right.size() - 1}) {
    junk.emplace_back(right.begin(), right.begin() + static_cast<std::ptrdiff_t>(bytes));
  }
  for (std::size_t bytes : {std::size_t{1}, right.size(), kMaxOfferBytes, std::size_t{4096}}) {
    junk.push_back(random_bytes(bytes));
  }
  return junk;
}

class VerbsConnect : public VerbsTest {
 protected:
  std::unique_ptr<Device> open() const {
    return open_device(device_name(), device_address(device_name()));
  }
  std::unique_ptr<Offer> offer(Device& device) const {
    return device.offer(QueueDepths{}, device_address(device_name()));
  }
  // Offers, and tells the blob to the other side.
  std::unique_ptr<Offer> offer_to(Peer& peer, Device& device) const {
    auto made = offer(device);
    const Blob blob = made->blob();
    EXPECT_FALSE(blob.empty());
    EXPECT_LE(blob.size(), kMaxOfferBytes);
    peer.tell({reinterpret_cast<const char*>(blob.data()), blob.size()});
    return made;
  }
  static Blob hear_blob(Peer& peer) {
    const std::string word = peer.hear();
    const auto bytes = std::as_bytes(std::span(word));
    return {bytes.begin(), bytes.end()};
  }
};

TEST_P(VerbsConnect, DeviceIsUsableAndSaysWhatItIs) {
  const auto device = open();
  EXPECT_TRUE(device->info().usable) << device->info().why_not;
  EXPECT_EQ(device->info().name, device_name());
  EXPECT_FALSE(device->info().description.empty());
  const Limits limits = device->limits();
  EXPECT_GE(limits.max_inline_bytes, 8u);
  EXPECT_GE(limits.max_send_requests, 16u);
  EXPECT_GE(limits.max_receive_requests, 16u);
  EXPECT_GE(limits.max_request_bytes, std::size_t{1} << 20);
}

TEST_P(VerbsConnect, ProbedDeviceIsUsable) {
  const DeviceInfo info = probe_device(device_name());
  EXPECT_EQ(info.name, device_name());
  EXPECT_TRUE(info.usable) << info.why_not;
}

TEST_P(VerbsConnect, AcceptThrowsAtItsDeadline) {
  const auto device = open();
  const auto waiting = offer(*device);
  expect_error([&] { waiting->accept(deadline_after(kShort), -1); }, ErrorCode::kTimeout);
}

TEST_P(VerbsConnect, AcceptThrowsOnceItsLifelineHangsUp) {
  const auto device = open();
  const auto waiting = offer(*device);
  auto lifeline = stream_sockets();
  std::thread peer([&] { lifeline[1].reset(); });
  expect_error([&] { waiting->accept(hang_deadline(), lifeline[0].get()); }, ErrorCode::kPeerDied);
  peer.join();
}

TEST_P(VerbsConnect, AcceptThrowsOnceItsLifelineIsReadable) {
  const auto device = open();
  const auto waiting = offer(*device);
  auto lifeline = stream_sockets();
  std::thread peer([&] { EXPECT_EQ(::write(lifeline[1].get(), "x", 1), 1); });
  expect_error([&] { waiting->accept(hang_deadline(), lifeline[0].get()); }, ErrorCode::kPeerDied);
  peer.join();
}

TEST_P(VerbsConnect, ConnectThrowsAtItsDeadlineIfNobodyAccepts) {
  run_pair(
      mode(),
      [&](Peer& peer) {
        const auto device = open();
        const auto waiting = offer_to(peer, *device);
        peer.hear("gave up");
      },
      [&](Peer& peer) {
        const auto device = open();
        const Blob blob = hear_blob(peer);
        expect_error([&] { device->connect(blob, {}, deadline_after(kShort)); },
                     ErrorCode::kTimeout);
        peer.tell("gave up");
      });
}

TEST_P(VerbsConnect, ConnectToAWithdrawnOfferIsAnError) {
  run_pair(
      mode(),
      [&](Peer& peer) {
        const auto device = open();
        offer_to(peer, *device).reset();
        peer.tell("withdrawn");
        peer.hear("refused");
      },
      [&](Peer& peer) {
        const auto device = open();
        const Blob blob = hear_blob(peer);
        peer.hear("withdrawn");
        expect_error([&] { device->connect(blob, {}, deadline_after(kLong)); });
        peer.tell("refused");
      });
}

TEST_P(VerbsConnect, JunkBlobsAreErrorsAndTheOfferStillServesTheRightPeer) {
  run_pair(
      mode(),
      [&](Peer& peer) {
        const auto device = open();
        const auto waiting = offer_to(peer, *device);
        const auto queue_pair = waiting->accept(hang_deadline(), -1);
        peer.barrier();
      },
      [&](Peer& peer) {
        const auto device = open();
        const Blob right = hear_blob(peer);
        for (const Blob& junk : junk_blobs(right)) {
          expect_error([&] { device->connect(junk, {}, deadline_after(kLong)); });
        }
        const auto queue_pair = device->connect(right, {}, hang_deadline());
        peer.barrier();
      });
}

// Whichever byte of the blob is wrong, only a peer with the right blob gets through.
TEST_P(VerbsConnect, BlobWithOneWrongByteDoesNotTakeTheOffer) {
  run_pair(
      mode(),
      [&](Peer& peer) {
        const auto device = open();
        const auto waiting = offer_to(peer, *device);
        const auto queue_pair = waiting->accept(hang_deadline(), -1);
        peer.barrier();
      },
      [&](Peer& peer) {
        const auto device = open();
        const Blob right = hear_blob(peer);
        for (std::size_t i = 0; i < right.size(); ++i) {
          SCOPED_TRACE("byte " + std::to_string(i));
          Blob wrong = right;
          wrong[i] ^= std::byte{0x40};
          expect_error([&] { device->connect(wrong, {}, deadline_after(kLong)); });
        }
        const auto queue_pair = device->connect(right, {}, hang_deadline());
        peer.barrier();
      });
}

TEST_P(VerbsConnect, TwoHundredConnectionsLeaveNothingBehind) {
  const std::size_t count = scaled(200);
  const auto connect_once = [&](Peer& peer, bool passive) {
    const auto device = open();
    const auto region = device->allocate(4096, kRemoteWrite);
    std::unique_ptr<QueuePair> queue_pair;
    if (passive) {
      queue_pair = offer_to(peer, *device)->accept(hang_deadline(), -1);
    } else {
      queue_pair = device->connect(hear_blob(peer), {}, hang_deadline());
    }
    peer.barrier();
  };
  const auto body = [&](Peer& peer, bool passive) {
    connect_once(peer, passive);  // whatever is made once is made now
    const Holdings before = count_holdings();
    for (std::size_t i = 0; i < count; ++i) connect_once(peer, passive);
    peer.barrier();
    expect_no_more_than(before, std::size_t{8} << 20);
    peer.barrier();
  };
  run_pair(
      mode(), [&](Peer& peer) { body(peer, true); }, [&](Peer& peer) { body(peer, false); });
}

TEST_P(VerbsConnect, OneDeviceServesSeveralOffers) {
  constexpr int kCount = 8;
  run_pair(
      mode(),
      [&](Peer& peer) {
        const auto device = open();
        std::vector<std::unique_ptr<Offer>> offers;
        std::vector<std::unique_ptr<QueuePair>> queue_pairs;
        for (int i = 0; i < kCount; ++i) offers.push_back(offer_to(peer, *device));
        for (const auto& waiting : offers) {
          queue_pairs.push_back(waiting->accept(hang_deadline(), -1));
        }
        peer.barrier();
      },
      [&](Peer& peer) {
        const auto device = open();
        std::vector<std::unique_ptr<QueuePair>> queue_pairs;
        for (int i = 0; i < kCount; ++i) {
          queue_pairs.push_back(device->connect(hear_blob(peer), {}, hang_deadline()));
        }
        peer.barrier();
      });
}

LEAT_INSTANTIATE_ON_DEVICES(VerbsConnect);

// Only where a user is checked at all: processes of one host, and only root can become another.
TEST(ShmConnect, AnotherUsersProcessIsTurnedAwayAndTheOfferStillServes) {
  if (::geteuid() != 0) GTEST_SKIP() << "must run as root to become another user";
  run_pair(
      PeerMode::kProcesses,
      [&](Peer& peer) {
        const auto device = open_device("shm", {});
        const auto offer = device->offer({}, {});
        const Blob blob = offer->blob();
        peer.tell({reinterpret_cast<const char*>(blob.data()), blob.size()});
        const auto queue_pair = offer->accept(hang_deadline(), -1);
        peer.barrier();
      },
      [&](Peer& peer) {
        const std::string word = peer.hear();
        const auto blob = std::as_bytes(std::span(word));
        run_process("another user", [&] {
          ASSERT_EQ(::setuid(kNobody), 0);
          expect_error([&] { open_device("shm", {})->connect(blob, {}, deadline_after(kLong)); });
        });
        const auto device = open_device("shm", {});
        const auto queue_pair = device->connect(blob, {}, hang_deadline());
        peer.barrier();
      });
}

TEST(OpenDevice, UnknownNameIsAnErrorThatSaysWhichNamesThereAre) {
  try {
    open_device("carrier-pigeon", {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_NE(std::string(error.what()).find("shm"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace leat::detail
