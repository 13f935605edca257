// Transport chunked goes on when queue pairs fail in mid-transfer, again and again: every message
// arrives once, whole and in order; or both sides get an error that says how far it came.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "leat/error.h"
#include "support/devices.h"
#include "support/pattern.h"
#include "support/scale.h"
#include "support/transport_side.h"

namespace leat::detail {
namespace {

constexpr std::size_t kResumedRegionBytes = 256 * 1024;
constexpr std::size_t kResumedChunkBytes = 48 * 1024;

std::size_t resumed_size_of(std::uint64_t n) {
  std::mt19937_64 random(n);
  if (n % 20 == 19) return random() % 900'000;  // in several parts
  if (n % 4 == 3) return random() % 200'000;
  return random() % 3000;
}

// Before some messages comes one that its sender may give up; no other message has its size.
constexpr std::size_t kResumedDoubtfulBytes = 900'001;
bool resumed_doubtful_comes_before(std::uint64_t n) { return n % 9 == 4; }

void send_all(TransportSide& side, std::uint64_t count) {
  std::vector<std::byte> message;
  for (std::uint64_t n = 0; n < count; ++n) {
    if (resumed_doubtful_comes_before(n))
      side.send_or_give_up(kResumedDoubtfulBytes, n, context_of(n));
    message.resize(resumed_size_of(n));
    fill_pattern(message, n);
    side.send(message, context_of(n));
  }
  side.end();
}

void receive_all(TransportSide& side, std::uint64_t count) {
  for (std::uint64_t n = 0;; ++n) {
    Delivery delivery;
    if (!side.receive(context_of(n), delivery)) {
      EXPECT_EQ(n, count);
      return;
    }
    if (resumed_doubtful_comes_before(n) && delivery.bytes == kResumedDoubtfulBytes) {
      ASSERT_EQ(pattern_mismatch(bytes_of(delivery), n), kResumedDoubtfulBytes)
          << "before message " << n;
      if (delivery.must_release) side.transport->release(delivery);
      delivery = {};
      ASSERT_TRUE(side.receive(context_of(n), delivery));
    }
    ASSERT_EQ(bytes_of(delivery).size(), resumed_size_of(n)) << "message " << n;
    ASSERT_EQ(pattern_mismatch(bytes_of(delivery), n), resumed_size_of(n)) << "message " << n;
    if (delivery.must_release) side.transport->release(delivery);
  }
}

// Goes on calling the transport, which resumes only then, until the other side has said a word.
void stay_for(TransportSide& side, std::string_view word) {
  const Deadline deadline = hang_deadline();
  while (!side.peer.has_word() && !passed(deadline)) {
    Delivery delivery;
    EXPECT_NE(side.transport->try_receive(0, delivery), ReceiveResult::kMessage);
    std::this_thread::yield();
  }
  side.peer.hear(word);
}

std::uint64_t resumes_of(const TransportSide& side) {
  Stats stats;
  side.transport->add_stats(stats);
  return stats.resumes;
}

struct ResumeCase {
  std::string name;
  FaultProfile first;
  FaultProfile second;
  ChunkMode mode = ChunkMode::kInPlace;
  std::size_t window = 0;
  bool sleeps = false;
};
void PrintTo(const ResumeCase& one, std::ostream* out) { *out << one.name; }

std::vector<ResumeCase> cases(const std::string& device) {
  std::vector<ResumeCase> all;
  // Hardware takes a tenth of a second to re-establish a queue pair, and a sanitizer slows down all
  // that is sent: not as often there.
  std::vector<std::uint64_t> numbers{24, 61, 200};
  if (device != "shm") numbers = {61};
  if (kSanitizer) numbers = {24};
  for (const std::uint64_t n : numbers) {
    const std::string number = std::to_string(n);
    const FaultProfile sends{.seed = n, .failing_request = n, .like_hardware = true};
    const FaultProfile receives{.seed = n, .flushed_receive = n, .like_hardware = true};
    const FaultProfile late{
        .seed = n, .max_delay_polls = 20, .failing_request = n, .like_hardware = true};
    const FaultProfile none{.like_hardware = true};
    all.push_back({"sender_" + number, sends, none});
    all.push_back({"receiver_" + number, none, receives});
    // It makes fewer than 200.
    if (n < 200) all.push_back({"receivers_credits_" + number, none, sends});
    all.push_back({"late_completions_" + number, late, late});
    all.push_back({"both_" + number, sends, receives});
    all.push_back({"one_chunk_" + number, sends, none, ChunkMode::kInPlace, 1});
    all.push_back({"sleepers_" + number, sends, receives, ChunkMode::kInPlace, 0, true});
    all.push_back({"with_headers_" + number, late, receives, ChunkMode::kHeader, 3});
  }
  return all;
}

// Parameters: device, threads or processes, what fails.
class ChunkedResume : public testing::TestWithParam<std::tuple<std::string, PeerMode, ResumeCase>> {
 protected:
  const ResumeCase& what() const { return std::get<2>(GetParam()); }
  TransportSetup setup() const {
    TransportSetup setup;
    setup.device = std::get<0>(GetParam());
    setup.transport = "chunked";
    setup.first = what().first;
    setup.second = what().second;
    setup.resumes = true;
    setup.settings = {.max_message_bytes = std::size_t{1} << 20,
                      .chunked_mode = what().mode,
                      .chunked_chunk_bytes = kResumedChunkBytes,
                      .chunked_window = what().window,
                      .chunked_region_bytes = kResumedRegionBytes,
                      .chunked_verify = true};
    return setup;
  }
};

TEST_P(ChunkedResume, EveryMessageArrivesOnceWholeAndInOrder) {
  const std::uint64_t count = kSanitizer ? 150 : 400;  // enough for every fault to happen
  run_transports(
      std::get<1>(GetParam()), setup(),
      [&](TransportSide& side) {
        side.watches_lifeline = false;
        side.sleeps = what().sleeps;
        send_all(side, count);
        stay_for(side, "received");
        EXPECT_GE(resumes_of(side), 1u);
      },
      [&](TransportSide& side) {
        side.watches_lifeline = false;
        side.sleeps = what().sleeps;
        receive_all(side, count);
        EXPECT_GE(resumes_of(side), 1u);
        side.peer.tell("received");
      });
}

TEST_P(ChunkedResume, BothDirectionsAtOnce) {
  const std::uint64_t count = kSanitizer ? 75 : 200;
  const auto body = [&](TransportSide& side) {
    side.watches_lifeline = false;
    side.sleeps = what().sleeps;
    std::thread receiver([&] { receive_all(side, count); });
    send_all(side, count);
    receiver.join();
    side.peer.tell("received");
    stay_for(side, "received");
  };
  run_transports(std::get<1>(GetParam()), setup(), body, body);
}

std::string resume_test_name(const testing::TestParamInfo<ChunkedResume::ParamType>& parameters) {
  const auto& [device, mode, what] = parameters.param;
  return device_label(device) + "_" + to_string(mode) + "_" + what.name;
}

std::vector<ChunkedResume::ParamType> parameters() {
  std::vector<ChunkedResume::ParamType> all;
  for (const std::string& device : test_devices())
    for (const PeerMode mode : {PeerMode::kThreads, PeerMode::kProcesses})
      for (ResumeCase& one : cases(device)) all.emplace_back(device, mode, std::move(one));
  return all;
}

INSTANTIATE_TEST_SUITE_P(Devices, ChunkedResume, testing::ValuesIn(parameters()), resume_test_name);

// --- what cannot be resumed

TransportSetup failing_once() {
  TransportSetup setup;
  setup.transport = "chunked";
  setup.resumes = true;
  setup.first = {.failing_request = 30, .like_hardware = true};
  setup.second = {.like_hardware = true};
  setup.settings = {.max_message_bytes = std::size_t{64} << 20,
                    .chunked_chunk_bytes = kResumedChunkBytes,
                    .chunked_region_bytes = kResumedRegionBytes,
                    .chunked_resume_timeout = std::chrono::milliseconds(300)};
  return setup;
}

// Sends until there is an error, which it gives.
Error send_until_error(TransportSide& side) {
  std::vector<std::byte> message(std::size_t{32} << 20);
  const Deadline deadline = hang_deadline();
  try {
    while (!passed(deadline)) (void)side.transport->try_send(message, 3);
  } catch (const Error& error) {
    // It is dead for good, on both sides of the transport; waits may begin as ever.
    side.transport->arm(Side::kSend);
    side.transport->arm(Side::kReceive);
    EXPECT_THROW((void)side.transport->try_send(message, 3), Error);
    Delivery delivery;
    EXPECT_THROW((void)side.transport->try_receive(3, delivery), Error);
    return error;
  }
  ADD_FAILURE() << "no error";
  return {ErrorCode::kSystem, "none"};
}

TEST(ChunkedNotResumed, PeerThatDoesNotAnswerIsATimeoutThatSaysHowFarItCame) {
  run_transports(
      PeerMode::kThreads, failing_once(),
      [](TransportSide& side) {
        const Error error = send_until_error(side);
        EXPECT_EQ(to_string(error.code()), to_string(ErrorCode::kTimeout));
        for (const char* word : {"could not be resumed", "context 3", "33554432 bytes"})
          EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
        side.peer.tell("failed");
      },
      [](TransportSide& side) { side.peer.hear("failed"); });  // it never looks
}

TEST(ChunkedNotResumed, PeerThatIsGoneForGoodIsNoticedAtOnce) {
  run_transports(
      PeerMode::kThreads, failing_once(),
      [](TransportSide& side) {
        side.peer.hear("gone");
        const Error error = send_until_error(side);
        EXPECT_EQ(to_string(error.code()), to_string(ErrorCode::kPeerDied)) << error.what();
      },
      [](TransportSide& side) {
        side.stream->abort();
        side.peer.tell("gone");
      });
}

TEST(ChunkedNotResumed, NonsenseOnTheLifelineIsAnError) {
  run_transports(
      PeerMode::kThreads, failing_once(),
      [](TransportSide& side) {
        side.peer.hear("said");
        const Error error = send_until_error(side);
        EXPECT_EQ(to_string(error.code()), to_string(ErrorCode::kProtocol)) << error.what();
        side.peer.tell("failed");
      },
      [](TransportSide& side) {
        const std::vector<std::byte> nonsense(4096, std::byte{0x5a});
        write_all(*side.stream, nonsense, hang_deadline());
        side.peer.tell("said");
        side.peer.hear("failed");
      });
}

TEST(ChunkedNotResumed, TransportMayBeDestroyedWhileItResumes) {
  TransportSetup setup = failing_once();
  setup.settings.chunked_resume_timeout = hang_limit();
  run_transports(
      PeerMode::kThreads, setup,
      [](TransportSide& side) {
        std::vector<std::byte> message(std::size_t{32} << 20);
        const Deadline deadline = hang_deadline();
        const auto resuming = [&] {
          return side.transport->describe().find("re-established") != std::string::npos;
        };
        while (!resuming() && !passed(deadline)) (void)side.transport->try_send(message, 3);
        EXPECT_TRUE(resuming());
        side.transport.reset();
        side.peer.tell("destroyed");
      },
      [](TransportSide& side) { side.peer.hear("destroyed"); });
}

}  // namespace
}  // namespace leat::detail
