// Offers of shared memory, from the connector that leaves them to the acceptor that takes them.
#include "preload/offer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "preload/real.h"
#include "preload/shared_memory.h"

namespace leat::preload {
namespace {

// Stands in for the C library's recvmsg() while it lives: the first calls give the end as the
// kernel does, which leaves no room for control messages then.
class EndsBeforeMessages {
 public:
  explicit EndsBeforeMessages(int ends) {
    calls = 0;
    ends_first = ends;
    replaced().recvmsg = receive;
  }
  ~EndsBeforeMessages() { replaced().recvmsg = original; }
  EndsBeforeMessages(const EndsBeforeMessages&) = delete;
  EndsBeforeMessages& operator=(const EndsBeforeMessages&) = delete;

  static inline int calls = 0;

 private:
  static Real& replaced() { return const_cast<Real&>(real()); }  // which is made as no constant
  static ssize_t receive(int fd, msghdr* message, int flags) {
    if (++calls > ends_first) return original(fd, message, flags);
    message->msg_controllen = 0;
    return 0;
  }

  static inline int ends_first = 0;
  static inline const decltype(Real::recvmsg) original = real().recvmsg;
};

// A message that its sender has left before it closed, between the kernel's looks for the two.
TEST(Offers, OneThatIsBehindAnEndIsTakenWithItsMemory) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const int memory = memfd_create("offered", MFD_CLOEXEC);
  ASSERT_TRUE(send_offer(ends[1], {.magic = kMemoryMagic, .hops = 3}, memory));
  close(ends[1]);
  close(memory);
  const EndsBeforeMessages fake(1);
  Offer offer{};
  int memfd = -1;
  EXPECT_TRUE(receive_offer(ends[0], offer, memfd));
  EXPECT_EQ(EndsBeforeMessages::calls, 2);
  EXPECT_EQ(offer.hops, 3U);
  EXPECT_GE(memfd, 0);
  close(memfd);
  close(ends[0]);
}

TEST(Offers, AnEndWithoutOneIsNone) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  close(ends[1]);
  const EndsBeforeMessages fake(2);
  Offer offer{};
  int memfd = -1;
  EXPECT_FALSE(receive_offer(ends[0], offer, memfd));
  EXPECT_EQ(EndsBeforeMessages::calls, 2);
  EXPECT_EQ(memfd, -1);
  close(ends[0]);
}

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
