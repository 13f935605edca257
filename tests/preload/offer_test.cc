// Offers of shared memory, from the connector that leaves them to the acceptor that takes them.
#include "preload/offer.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "preload/shared_memory.h"

namespace leat::preload {
namespace {

// The acceptor waits for a message for a second. One that comes at the end of that second is taken,
// or its sender hears that it is not and makes another: the connection would be lost otherwise.
TEST(Offers, OneThatComesAsPatienceEndsIsTakenOrRefused) {
  using namespace std::chrono_literals;
  constexpr int kOffers = 200;
  const auto patience_ends = std::chrono::steady_clock::now() + 1100ms;
  std::vector<std::thread> threads;
  std::array<bool, kOffers> sent{};
  std::array<bool, kOffers> taken{};
  for (int i = 0; i < kOffers; ++i) {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    threads.emplace_back([&, i, end = ends[0]] {
      std::this_thread::sleep_until(patience_ends - 1s);
      Offer offer{};
      int memfd = -1;
      taken[i] = receive_offer(end, offer, memfd);
      close(end);
    });
    threads.emplace_back([&, i, end = ends[1]] {
      std::this_thread::sleep_until(patience_ends + i * 10us);
      sent[i] = send_offer(end, {.magic = kMemoryMagic}, -1);
      close(end);
    });
  }
  for (std::thread& thread : threads) thread.join();
  int lost = 0;
  for (int i = 0; i < kOffers; ++i) lost += sent[i] && !taken[i] ? 1 : 0;
  EXPECT_EQ(lost, 0);
}

}  // namespace
}  // namespace leat::preload
