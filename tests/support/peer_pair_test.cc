#include "support/peer_pair.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <stdexcept>
#include <string>
#include <thread>

#include "support/leaks.h"

namespace leat::detail {
namespace {

class PeerPair : public testing::TestWithParam<PeerMode> {};

TEST_P(PeerPair, WordsArriveWholeAndInOrder) {
  run_pair(
      GetParam(),
      [](Peer& peer) {
        peer.tell("");
        peer.tell(std::string("a\0b", 3));
        peer.tell_value(42);
        peer.barrier();
      },
      [](Peer& peer) {
        EXPECT_EQ(peer.hear(), "");
        EXPECT_EQ(peer.hear(), std::string("a\0b", 3));
        EXPECT_EQ(peer.hear_value<int>(), 42);
        peer.barrier();
      });
}

TEST_P(PeerPair, HearingFromAnEndedSideThrows) {
  run_pair(
      GetParam(), [](Peer& peer) { EXPECT_THROW(peer.hear(), std::runtime_error); }, [](Peer&) {});
}

TEST_P(PeerPair, AwaitEndReturnsOnceTheOtherSideEnded) {
  run_pair(
      GetParam(), [](Peer& peer) { peer.await_end(); }, [](Peer&) {});
}

INSTANTIATE_TEST_SUITE_P(Modes, PeerPair, testing::Values(PeerMode::kThreads, PeerMode::kProcesses),
                         testing::PrintToStringParamName());

// EXPECT_NONFATAL_FAILURE takes what its thread reports, also in a forked child. Another thread's
// failure goes the usual way.
void fail_in_a_thread(const std::string& text) {
  std::thread([&] { ADD_FAILURE() << text; }).join();
}

TEST(PeerProcess, FailureOfASideIsReportedWithItsName) {
  EXPECT_NONFATAL_FAILURE(
      run_pair(
          PeerMode::kProcesses, [](Peer&) {}, [](Peer&) { fail_in_a_thread("something broke"); }),
      "[second side] Failed\nsomething broke");
}

TEST(PeerThread, ExceptionOfASideIsAFailure) {
  EXPECT_NONFATAL_FAILURE_ON_ALL_THREADS(
      run_pair(
          PeerMode::kThreads, [](Peer&) { throw std::runtime_error("no luck"); }, [](Peer&) {}),
      "exception: no luck");
}

TEST(PeerProcess, DeathOfASideIsAFailure) {
  EXPECT_NONFATAL_FAILURE(run_process("lonely", [] { ::raise(SIGKILL); }),
                          "[lonely] died of signal 9");
}

TEST(PeerProcess, SecondSideCanBeKilled) {
  run_pair(
      PeerMode::kProcesses,
      [](Peer& peer) {
        peer.kill_other();
        peer.await_end();
      },
      [](Peer& peer) { peer.await_end(); }, SecondEnds::kBySignal);
}

TEST(Holdings, CountsDescriptorsAndMapsAndThreads) {
  const Holdings now = count_holdings();
  EXPECT_GE(now.descriptors, 3u);
  EXPECT_GE(now.threads, 1u);
  EXPECT_GT(now.resident_bytes, 0u);
  expect_no_more_than(now, std::size_t{64} << 20);
}

}  // namespace
}  // namespace leat::detail
