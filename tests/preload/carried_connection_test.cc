// A carried connection by itself: its ring, its doorbell, and a peer that writes nonsense.
#include "preload/connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "preload/listening.h"
#include "preload/stream.h"

namespace leat::preload {
namespace {

// Both ends in one process.
class CarriedConnection : public testing::Test {
 protected:
  CarriedConnection() {
    connect_doorbell();
    void* memory =
        mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    memory_ = static_cast<SharedMemory*>(memory);
    EXPECT_TRUE(ends_[0].attach(memory_, 0, -1));
    EXPECT_TRUE(ends_[1].attach(memory_, 1, -1));
  }
  ~CarriedConnection() override {
    for (Connection& end : ends_) end.detach(false);
    munmap(memory_, kMemoryBytes);
    for (const int fd : fds_) close(fd);
  }

  void connect_doorbell() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* name = reinterpret_cast<sockaddr*>(&address);
    socklen_t bytes = sizeof(address);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(bind(listener, name, bytes), 0);
    EXPECT_EQ(listen(listener, 1), 0);
    EXPECT_EQ(getsockname(listener, name, &bytes), 0);
    fds_[0] = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(fds_[0], name, bytes), 0);
    fds_[1] = accept(listener, nullptr, nullptr);
    EXPECT_GE(fds_[1], 0);
    close(listener);
    const int one = 1;
    for (const int fd : fds_) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  }

  std::size_t put(unsigned end, const std::vector<char>& bytes) {
    const iovec vector{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
    posix::Buffers from(&vector, 1);
    return static_cast<std::size_t>(ends_[end].put(fds_[end], from));
  }
  std::vector<char> take(unsigned end, std::size_t most, bool peek = false) {
    std::vector<char> bytes(most);
    const iovec vector{.iov_base = bytes.data(), .iov_len = most};
    posix::Buffers to(&vector, 1);
    bytes.resize(static_cast<std::size_t>(ends_[end].take(fds_[end], to, peek)));
    return bytes;
  }
  std::size_t rings(unsigned end) const {
    char bytes[64];
    const ssize_t got = recv(fds_[end], bytes, sizeof(bytes), MSG_DONTWAIT);
    return got < 0 ? 0 : static_cast<std::size_t>(got);
  }

  int fds_[2] = {-1, -1};
  SharedMemory* memory_ = nullptr;
  Connection ends_[2];
};

TEST_F(CarriedConnection, BytesComeInOrderAroundTheRingsEnd) {
  std::vector<char> bytes(kRingBytes / 3 + 7);
  std::iota(bytes.begin(), bytes.end(), 0);
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(put(0, bytes), bytes.size());
    EXPECT_EQ(take(1, bytes.size(), true), bytes);
    EXPECT_EQ(take(1, bytes.size()), bytes);
  }
  EXPECT_TRUE(take(1, 1).empty());
}

TEST_F(CarriedConnection, AFullRingTakesNoMoreUntilAQuarterIsFree) {
  const std::vector<char> much(kRingBytes + 100);
  EXPECT_EQ(put(0, much), kRingBytes);
  EXPECT_EQ(put(0, {'x'}), 0U);
  EXPECT_EQ(ends_[0].poll_mask() & POLLOUT, 0U);
  take(1, kRingBytes / 4 - 1);
  EXPECT_EQ(ends_[0].poll_mask() & POLLOUT, 0U);
  take(1, 1);
  EXPECT_NE(ends_[0].poll_mask() & POLLOUT, 0U);
}

TEST_F(CarriedConnection, TheBellRingsOnceForWhoArmed) {
  put(0, {'a'});
  EXPECT_EQ(rings(1), 0U) << "there is no sleeper";
  take(1, 1);
  unsigned bells = ends_[1].arm(POLLIN, 0);
  put(0, {'b'});
  put(0, {'c'});
  EXPECT_EQ(rings(1), 1U);
  bells = ends_[1].arm(POLLIN, bells);
  put(0, {'d'});
  EXPECT_EQ(rings(1), 1U) << "it sleeps again";
  bells = ends_[1].arm(POLLIN, bells);
  ends_[1].leave(bells);
  put(0, {'e'});
  EXPECT_EQ(rings(1), 0U) << "it is awake";
  {
    const Asleep one(ends_[1], POLLIN);
    { const Asleep other(ends_[1], POLLIN); }
    put(0, {'f'});
    EXPECT_EQ(rings(1), 1U) << "one of two still sleeps";
  }
  take(1, 10);
  const Asleep sender(ends_[0], POLLOUT);
  const std::vector<char> much(kRingBytes);
  put(0, much);
  take(1, kRingBytes / 8);
  EXPECT_EQ(rings(0), 0U) << "hardly any room yet";
  take(1, kRingBytes / 4);
  EXPECT_EQ(rings(0), 1U);
}

TEST_F(CarriedConnection, ImpossiblePositionsResetIt) {
  memory_->directions[0].tail = kRingBytes + 1;
  EXPECT_TRUE(take(1, 100).empty());
  char byte = 0;
  const iovec vector{.iov_base = &byte, .iov_len = 1};
  EXPECT_EQ(receive(fds_[1], ends_[1], &vector, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);

  memory_->directions[1].head = 5;  // more than was ever sent
  memory_->directions[1].head_seen = 5;
  EXPECT_EQ(put(1, {'x'}), 0U);
}

// What the peer wrote past us is missing, so neither an end nor what it sends later makes it good.
TEST_F(CarriedConnection, BytesThatAreNoRingsResetIt) {
  put(0, {'a'});
  ASSERT_EQ(::send(fds_[0], "!!past!", 7, 0), 7);
  ends_[0].shutdown(fds_[0], SHUT_WR);
  EXPECT_EQ(take(1, 1), std::vector<char>{'a'});
  EXPECT_EQ(ends_[1].receive_state(fds_[1]), -ECONNRESET);
  memory_->directions[0].tail = 2;
  EXPECT_TRUE(take(1, 1).empty());
  EXPECT_EQ(ends_[1].readable_bytes(), 0U);
  EXPECT_EQ(ends_[1].send_state(fds_[1]), -EPIPE);
}

TEST_F(CarriedConnection, MoreRingsThanOneCallTakesHideNothing) {
  const std::vector<char> many(3000, '!');
  ASSERT_EQ(::send(fds_[0], many.data(), many.size(), 0), std::ssize(many));
  ends_[1].look_at_kernel(fds_[1]);
  EXPECT_EQ(rings(1), 0U);
  ASSERT_EQ(::send(fds_[0], many.data(), many.size(), 0), std::ssize(many));
  ASSERT_EQ(::send(fds_[0], "?", 1, 0), 1);
  ends_[1].look_at_kernel(fds_[1]);
  EXPECT_EQ(ends_[1].receive_state(fds_[1]), -ECONNRESET);
}

// The kernel leaves an urgent byte among the others where another follows before it is taken, or
// where the program wants it there.
TEST_F(CarriedConnection, UrgentBytesAmongTheRingsAreNoBreach) {
  const iovec vector{.iov_base = const_cast<char*>("u"), .iov_len = 1};
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(::send(fds_[0], "!", 1, 0), 1);
    EXPECT_EQ(send(fds_[0], ends_[0], &vector, 1, MSG_OOB), 1);
  }
  ends_[1].look_at_kernel(fds_[1]);
  ends_[1].look_at_kernel(fds_[1]);
  EXPECT_EQ(ends_[1].receive_state(fds_[1]), 0);
  const int one = 1;
  ASSERT_EQ(setsockopt(fds_[1], SOL_SOCKET, SO_OOBINLINE, &one, sizeof(one)), 0);
  EXPECT_EQ(send(fds_[0], ends_[0], &vector, 1, MSG_OOB), 1);
  ends_[1].look_at_kernel(fds_[1]);
  EXPECT_EQ(ends_[1].receive_state(fds_[1]), 0);
  ASSERT_EQ(::send(fds_[0], "past", 4, 0), 4);
  ends_[1].look_at_kernel(fds_[1]);
  EXPECT_EQ(ends_[1].receive_state(fds_[1]), -ECONNRESET);
}

TEST_F(CarriedConnection, APeerThatClosesWithBytesUnreadResets) {
  put(0, {'a', 'b'});
  ends_[1].note_closing(fds_[1], false);
  close(std::exchange(fds_[1], -1));
  EXPECT_EQ(ends_[0].receive_state(fds_[0]), -ECONNRESET);
}

TEST_F(CarriedConnection, AfterAnOrderlyCloseOneSendVanishesAndTheNextFails) {
  ends_[1].note_closing(fds_[1], false);
  close(std::exchange(fds_[1], -1));
  const iovec vector{.iov_base = const_cast<char*>("x"), .iov_len = 1};
  EXPECT_EQ(send(fds_[0], ends_[0], &vector, 0, MSG_NOSIGNAL), 0);
  EXPECT_EQ(ends_[0].send_state(fds_[0]), 1) << "nothing was sent yet";
  EXPECT_EQ(send(fds_[0], ends_[0], &vector, 1, MSG_NOSIGNAL), 1);
  EXPECT_EQ(ends_[0].receive_state(fds_[0]), 1);
  EXPECT_EQ(ends_[0].send_state(fds_[0]), -EPIPE);
  EXPECT_EQ(ends_[0].receive_state(fds_[0]), 1);
  pollfd kernels{.fd = fds_[0], .events = 0, .revents = 0};
  EXPECT_EQ(poll(&kernels, 1, 60'000), 1) << "so that a thread that sleeps there wakes";
  EXPECT_NE(kernels.revents & POLLHUP, 0);
}

// The peer has noted that it closes, but the kernel's close is still to come.
TEST_F(CarriedConnection, ANoteStandsUntilTheKernelsClose) {
  ends_[1].note_closing(fds_[1], false);
  EXPECT_EQ(ends_[0].receive_state(fds_[0]), 0);
  ASSERT_EQ(::send(fds_[1], "!", 1, 0), 1);  // a ring, and behind it the end
  close(std::exchange(fds_[1], -1));
  put(0, {'x'});
  EXPECT_EQ(ends_[0].receive_state(fds_[0]), 1);
  EXPECT_EQ(ends_[0].send_state(fds_[0]), -EPIPE) << "what was sent after the close";
}

TEST_F(CarriedConnection, ANoteIsForgottenWhereAnotherProcessHoldsTheSocket) {
  const int copy = dup(fds_[1]);
  ends_[1].note_closing(fds_[1], false);
  close(std::exchange(fds_[1], copy));
  while (memory_->sides[1].note.load() != kNotClosed) EXPECT_EQ(ends_[0].receive_state(fds_[0]), 0);
  put(0, {'a'});
  close(std::exchange(fds_[1], -1));  // killed
  ends_[0].look_at_kernel(fds_[0]);
  EXPECT_EQ(ends_[0].receive_state(fds_[0]), -ECONNRESET);
}

// Bytes that the program never takes must not hide the end behind them.
TEST_F(CarriedConnection, AnEndIsFoundBehindRingsThatAnotherListensFor) {
  const Listening other(&ends_[0].own());
  ASSERT_EQ(::send(fds_[1], "!", 1, 0), 1);
  close(std::exchange(fds_[1], -1));  // killed
  ends_[0].look_at_kernel(fds_[0]);
  EXPECT_EQ(ends_[0].receive_state(fds_[0]), 1);
}

TEST_F(CarriedConnection, ABadPointerLosesNothing) {
  char byte = 0;
  iovec vectors[2] = {{.iov_base = &byte, .iov_len = 1}, {.iov_base = nullptr, .iov_len = 1}};
  put(0, {'a', 'b'});
  EXPECT_EQ(receive(fds_[1], ends_[1], vectors, 2, 0), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(take(1, 2), (std::vector<char>{'a', 'b'}));
  EXPECT_EQ(send(fds_[0], ends_[0], vectors, 2, 0), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(ends_[1].readable_bytes(), 0U);
}

// More than there is room for: the last byte waits for its turn.
TEST_F(CarriedConnection, AnUrgentByteGoesAfterAllOthers) {
  std::vector<char> much(2 * kRingBytes);
  std::iota(much.begin(), much.end(), 0);
  const iovec vector{.iov_base = much.data(), .iov_len = much.size()};
  EXPECT_EQ(send(fds_[0], ends_[0], &vector, 1, MSG_OOB | MSG_DONTWAIT),
            static_cast<ssize_t>(kRingBytes));
  char urgent = 0;
  EXPECT_EQ(recv(fds_[1], &urgent, 1, MSG_OOB | MSG_DONTWAIT), -1) << "those that went are others";
  take(1, kRingBytes);
  std::thread sender([&] {
    EXPECT_EQ(send(fds_[0], ends_[0], &vector, 1, MSG_OOB), static_cast<ssize_t>(much.size()));
  });
  std::vector<char> got(much.size() - 1);
  const iovec whole{.iov_base = got.data(), .iov_len = got.size()};
  EXPECT_EQ(receive(fds_[1], ends_[1], &whole, 1, MSG_WAITALL), static_cast<ssize_t>(got.size()));
  sender.join();
  EXPECT_TRUE(std::equal(got.begin(), got.end(), much.begin()));
  EXPECT_EQ(recv(fds_[1], &urgent, 1, MSG_OOB), 1);
  EXPECT_EQ(urgent, much.back());
  EXPECT_EQ(ends_[1].readable_bytes(), 0U);
}

// Another thread may close a descriptor while a call goes on, and the kernel give its number away.
TEST_F(CarriedConnection, ADescriptorThatMeansSomethingElseByNowIsLeftAlone) {
  ends_[0].is_in_table();  // where no number means it
  const Asleep reader(ends_[1], POLLIN);
  put(0, {'a'});
  EXPECT_EQ(rings(1), 0U);
  ASSERT_EQ(::send(fds_[1], "mine", 4, 0), 4);
  ends_[0].look_at_kernel(fds_[0]);
  EXPECT_EQ(rings(0), 4U);
}

TEST_F(CarriedConnection, TheProgramsBuffersLimitWhatIsUnderWay) {
  ends_[0].set_buffers(20'000, 0);
  EXPECT_EQ(put(0, std::vector<char>(50'000)), 50'000U) << "only one program has set its own";
  take(1, 50'000);
  ends_[1].set_buffers(0, 12'000);
  EXPECT_EQ(put(0, std::vector<char>(50'000)), 32'000U);
  EXPECT_EQ(ends_[0].poll_mask() & POLLOUT, 0U);
  const Asleep sender(ends_[0], POLLOUT);
  take(1, 7'999);
  EXPECT_EQ(rings(0), 0U);
  EXPECT_EQ(ends_[0].poll_mask() & POLLOUT, 0U);
  take(1, 1);
  EXPECT_EQ(rings(0), 1U);
  EXPECT_NE(ends_[0].poll_mask() & POLLOUT, 0U);
  ends_[1].set_buffers(0, 1);
  EXPECT_EQ(put(0, {'a'}), 0U) << "more is under way than may be";
  EXPECT_EQ(put(1, std::vector<char>(50'000)), 50'000U);
}

// A waiter for the next room is not woken by every message that is taken.
TEST_F(CarriedConnection, TheNextRoomIsOneAfterThereWasNone) {
  ends_[0].leave(ends_[0].arm(POLLOUT, 0));
  put(0, {'a'});
  take(1, 1);
  const unsigned bells = ends_[0].arm_for_next_room(0);
  put(0, {'b'});
  take(1, 1);
  const std::size_t before = rings(0);  // at most once for the room that there always was
  put(0, {'c'});
  take(1, 1);
  EXPECT_LE(before + rings(0), 1U);
  EXPECT_EQ(put(0, std::vector<char>(kRingBytes + 1)), kRingBytes);
  take(1, kRingBytes / 2);
  EXPECT_EQ(rings(0), 1U);
  ends_[0].leave(bells);
}

// Otherwise it would sleep without a thread that hears the doorbell for it.
TEST_F(CarriedConnection, WhoCannotListenSleepsOnlyWhileTheOtherDoes) {
  EndState& side = ends_[0].own();
  std::optional<Listening> one(&side);
  const Listening other(&side);
  EXPECT_TRUE(one->ours());
  EXPECT_FALSE(other.ours());
  EXPECT_EQ(side.turn.load(), other.turn());
  one.reset();
  EXPECT_NE(side.turn.load(), other.turn());
}

// The memory between pages that nobody may touch.
class GuardedMemory {
 public:
  GuardedMemory() {
    void* all =
        mmap(nullptr, kMemoryBytes + 2 * kPage, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(all, MAP_FAILED);
    all_ = static_cast<std::byte*>(all);
    EXPECT_EQ(mprotect(all_ + kPage, kMemoryBytes, PROT_READ | PROT_WRITE), 0);
  }
  ~GuardedMemory() { munmap(all_, kMemoryBytes + 2 * kPage); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  std::byte* begin() const { return all_ + kPage; }

 private:
  static constexpr std::size_t kPage = 4096;
  std::byte* all_ = nullptr;
};

// The log of a few thousand resets.
class SilentLog {
 public:
  SilentLog() : kept_(dup(STDERR_FILENO)) {
    const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nothing, STDERR_FILENO);
    close(nothing);
  }
  ~SilentLog() {
    dup2(kept_, STDERR_FILENO);
    close(kept_);
  }
  SilentLog(const SilentLog&) = delete;
  SilentLog& operator=(const SilentLog&) = delete;

 private:
  int kept_;
};

// What a hostile peer writes at a place of the header: anything, or what may be a position.
std::uint64_t any_word(std::mt19937_64& random, std::uint64_t before) {
  switch (random() % 5) {
    case 0:
      return random();
    case 1:
      return random() % (2 * kRingBytes + 2);
    case 2:
      return before + random() % (2 * kRingBytes) - kRingBytes;
    case 3:
      return std::uint64_t{0} - random() % 3;
    default:
      return random() % 8;
  }
}

// Whatever the peer writes, all over the header and between the calls, this side's calls return.
TEST_F(CarriedConnection, AnyBytesInTheHeaderLetEveryCallReturn) {
  constexpr int kSeeds = 3000;
  const GuardedMemory guarded;
  const SilentLog silent;
  std::vector<char> bytes(5000, 'x');
  const iovec vector{.iov_base = bytes.data(), .iov_len = bytes.size()};
  const auto most = std::ssize(bytes);
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const unsigned side = seed % 2;
    const int fd = fds_[side];
    std::memset(guarded.begin(), 0, kHeaderBytes);
    auto* memory = reinterpret_cast<SharedMemory*>(guarded.begin());
    memory->begin({}, {});
    Connection end;
    ASSERT_TRUE(end.attach(memory, side, -1));
    const auto scribble = [&] {
      for (unsigned words = random() % 2 == 0 ? 1 : 300; words > 0; --words) {
        std::byte* at = guarded.begin() +
                        random() % (kHeaderBytes / sizeof(std::uint64_t)) * sizeof(std::uint64_t);
        std::uint64_t word = 0;
        std::memcpy(&word, at, sizeof(word));
        word = any_word(random, word);
        std::memcpy(at, &word, sizeof(word));
      }
    };
    for (int calls = 0; calls < 12; ++calls) {
      scribble();
      ssize_t result = 0;
      switch (random() % 6) {
        case 0:
          result = send(fd, end, &vector, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
          break;
        case 1:
          result = receive(fd, end, &vector, 1, MSG_DONTWAIT);
          break;
        case 2:
          result = receive(fd, end, &vector, 1, MSG_DONTWAIT | MSG_PEEK | MSG_WAITALL);
          break;
        case 3:
          EXPECT_EQ(end.poll_mask(fd) & ~(POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLRDHUP |
                                          POLLHUP | POLLERR),
                    0U);
          break;
        case 4: {
          const Asleep asleep(end, POLLIN | POLLOUT);
          EXPECT_LE(end.readable_bytes(), kRingBytes);
          EXPECT_LE(end.free_bytes(), kRingBytes);
          break;
        }
        default:
          end.is_over(fd);
          end.tcp_state(fd);
          end.take_error(fd);
          break;
      }
      EXPECT_GE(result, -1);
      EXPECT_LE(result, most);
    }
    scribble();
    end.note_closing(fd, false);
    end.note_closed();
    end.detach(false);
    for (const unsigned which : {0U, 1U})
      while (rings(which) != 0) {
      }
  }
}

// Each message is the answer to the last, so a wake-up that is lost hangs.
TEST_F(CarriedConnection, NoWakeUpIsLost) {
  constexpr int kRounds = 20000;
  std::thread echo([this] {
    char byte = 0;
    const iovec vector{.iov_base = &byte, .iov_len = 1};
    for (int i = 0; i < kRounds; ++i) {
      receive(fds_[1], ends_[1], &vector, 1, 0);
      send(fds_[1], ends_[1], &vector, 1, 0);
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    char byte = static_cast<char>(i);
    const iovec vector{.iov_base = &byte, .iov_len = 1};
    ASSERT_EQ(send(fds_[0], ends_[0], &vector, 1, 0), 1);
    byte = 0;
    ASSERT_EQ(receive(fds_[0], ends_[0], &vector, 1, 0), 1);
    ASSERT_EQ(byte, static_cast<char>(i));
  }
  echo.join();
}

}  // namespace
}  // namespace leat::preload
