// Operations that cannot fail do not end the program when memory runs out: closing, releasing, a
// listener's threads, and the log that they write. And what allocates nothing, counted by the same
// means.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/crypto.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/system_error.h"
#include "capi/stream_end.h"
#include "channel/stranger.h"
#include "handshake/greeting.h"
#include "handshake/hello.h"
#include "leat/channel.h"
#include "leat/listener.h"
#include "leat/socket.h"
#include "support/channel_side.h"
#include "support/lone_core.h"
#include "support/scale.h"
#include "support/silent_transport.h"
#include "support/transport_side.h"
#include "verbs/table.h"

namespace {

thread_local bool scarce = false;            // in this thread
thread_local bool fails_once = false;        // the next allocation of this thread
thread_local bool never_scarce = false;      // of a thread that goes on while others cannot
std::atomic<bool> scarce_elsewhere = false;  // in all threads but those
std::atomic<unsigned> refused_elsewhere = 0;
thread_local std::size_t allocations = 0;  // of this thread, OpenSSL's among them

void* allocate(std::size_t bytes) noexcept {
  ++allocations;
  if (scarce || std::exchange(fails_once, false)) return nullptr;
  if (scarce_elsewhere && !never_scarce) {
    ++refused_elsewhere;
    return nullptr;
  }
  return std::malloc(bytes == 0 ? 1 : bytes);
}

}  // namespace

// Not inlined: where one of a pair is, the compiler finds that they do not fit.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (void* memory = allocate(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return ::operator new(bytes); }
[[gnu::noinline]] void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

// OpenSSL asks for these before it has allocated anything, or never. They only count.
void* count_malloc(std::size_t bytes, const char*, int) {
  ++allocations;
  return std::malloc(bytes);
}
void* count_realloc(void* memory, std::size_t bytes, const char*, int) {
  ++allocations;
  return std::realloc(memory, bytes);
}
void count_free(void* memory, const char*, int) { std::free(memory); }
const bool counts_openssl = CRYPTO_set_mem_functions(count_malloc, count_realloc, count_free) == 1;

}  // namespace

namespace leat::detail {
namespace {

// While it exists, allocation fails in this thread.
struct NoMemory {
  NoMemory() { scarce = true; }
  ~NoMemory() { scarce = false; }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;
};

// While it exists, allocation fails in every other thread.
struct NoMemoryElsewhere {
  NoMemoryElsewhere() {
    never_scarce = true;
    refused_elsewhere = 0;
    scarce_elsewhere = true;
  }
  ~NoMemoryElsewhere() { scarce_elsewhere = false; }
  NoMemoryElsewhere(const NoMemoryElsewhere&) = delete;
  NoMemoryElsewhere& operator=(const NoMemoryElsewhere&) = delete;

  // Whether the others have asked for some that often.
  bool was_missed(unsigned often) const {
    const Deadline deadline = hang_deadline();
    while (refused_elsewhere < often) {
      if (passed(deadline)) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
};

struct Pair {
  explicit Pair(const ChannelKind& kind)
      : listener(listening_address(kind), channel_options(kind)),
        second(Channel::connect(listener.address(), channel_options(kind))),
        first(listener.accept()) {}

  Listener listener;
  Channel second;
  Channel first;
};

// Parameter: what carries the channel.
class WithoutMemory : public testing::TestWithParam<ChannelKind> {};

INSTANTIATE_TEST_SUITE_P(Channels, WithoutMemory, testing::ValuesIn(channel_kinds()),
                         testing::PrintToStringParamName());

TEST_P(WithoutMemory, AMessageIsReleased) {
  Pair pair(GetParam());
  constexpr std::size_t kBytes = 10'000;
  const auto pass = [&](bool without_memory) {
    for (int i = 0; i < 200; ++i) {
      send_pattern(pair.second, kBytes, 1);
      Message message = pair.first.receive();
      scarce = without_memory;
      message.release();
      scarce = false;
    }
  };
  pass(false);  // what is mapped at its first use has been mapped
  pass(true);
  send_pattern(pair.second, kBytes, 2);
  expect_message(pair.first.receive(), kBytes, 2);
}

TEST_P(WithoutMemory, AChannelIsClosed) {
  Pair pair(GetParam());
  send_pattern(pair.first, 1000, 1);  // which its peer has not received: somebody must linger
  const NoMemory scarcity;
  pair.first.close();
}

TEST_P(WithoutMemory, ASocketIsClosed) {
  Pair pair(GetParam());
  pair.second.send("unread");
  Socket socket(std::move(pair.first));
  const NoMemory scarcity;
  socket.close();
}

TEST(OutOfMemory, ALogOfPartsIsLost) {
  const std::string long_part(1000, '.');
  const NoMemory scarcity;
  log(LogLevel::kError, {"never to be seen", long_part});
}

// The lingerer, which is made for it, cannot be asked.
TEST(OutOfMemory, AChannelIsDestroyedBeforeAnyOtherWas) {
  auto lone = std::make_unique<LoneCore>(std::make_unique<SilentTransport>());
  const NoMemory scarcity;
  ChannelCore::orphan(lone->core.release());
  lone.reset();
}

TEST(OutOfMemory, ANewcomerIsTurnedAway) {
  const Settings settings;
  for (const bool speaks_leat : {false, true}) {
    std::array<int, 2> ends{};
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()),
          "socketpair");
    const Fd client(ends[0]);
    Greeting greeting(Fd(ends[1]), settings);
    if (speaks_leat)
      say(client, encode(Hello()));
    else
      say(client, "GET / HTTP/1.1\r\n\r\n and so on, longer than the header of a frame is");
    const NoMemory scarcity;
    EXPECT_EQ(greeting.advance(), Greeting::State::kOver);
  }
}

// A transport that has failed, in a way that is not the peer's end.
class DefectiveTransport final : public SilentTransport {
 public:
  bool try_flush() override { throw failure_; }
  ReceiveResult try_receive(Context, Delivery&) override { throw failure_; }

 private:
  const Error failure_{ErrorCode::kSystem, "a device that has failed in its own long-winded way"};
};

TEST(OutOfMemory, AHandleIsClosed) {
  auto lone = std::make_unique<LoneCore>(std::make_unique<DefectiveTransport>());
  auto end = std::make_unique<c::StreamEnd>(std::move(lone->core));
  const NoMemory scarcity;
  end->linger(std::chrono::milliseconds(1));
  end.reset();
}

// The thread that re-establishes a queue pair ends a connection for lack of memory, and its text
// with it.
TEST(OutOfMemory, AConnectionThatCannotBeResumedEnds) {
  TransportSetup setup;
  setup.transport = "chunked";
  setup.resumes = true;
  setup.first = {.failing_request = 3, .like_hardware = true};
  setup.second = {.like_hardware = true};
  setup.settings.chunked_resume_timeout = std::chrono::milliseconds(300);
  run_transports(
      PeerMode::kThreads, setup,
      [](TransportSide& side) {
        side.peer.hear("idle");
        const std::vector<std::byte> message(100);
        const NoMemoryElsewhere scarcity;
        const Deadline deadline = hang_deadline();
        bool ended = false;
        while (!ended && !passed(deadline)) {
          try {
            static_cast<void>(side.transport->try_send(message, 0));
          } catch (const Error&) {
            ended = true;
          }
        }
        EXPECT_TRUE(ended);
        EXPECT_TRUE(scarcity.was_missed(1));
      },
      [](TransportSide& side) {
        side.peer.tell("idle");
        side.peer.await_end();
      });
}

// Says what failed, and what helps.
TEST(OutOfMemory, ARegionOfThePeerThatCannotBeNotedIsAnErrorInWords) {
  const auto device = open_device("shm", {});
  const auto peers_device = open_device("shm", {});
  const QueueDepths depths;
  const auto offer = device->offer(depths, {});
  std::unique_ptr<QueuePair> peer;
  std::thread connecting(
      [&] { peer = peers_device->connect(offer->blob(), depths, hang_deadline()); });
  const auto queue_pair = offer->accept(hang_deadline(), -1);
  connecting.join();
  const auto region = peers_device->allocate(4096, kRemoteWrite);

  testing::internal::CaptureStderr();
  fails_once = true;
  queue_pair->arm(Side::kReceive);
  EXPECT_FALSE(std::exchange(fails_once, false));
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::AllOf(testing::HasSubstr("a region of its peer"), testing::HasSubstr("ulimit -v"),
                     testing::Not(testing::HasSubstr("bad_alloc"))));
}

// The door, and the threads of handshakes, which fail for lack of memory.
TEST(OutOfMemory, AListenerGoesOnAfterwards) {
  const ChannelKind tcp{"tcp", "tcp"};
  Listener listener(listening_address(tcp), channel_options(tcp));
  std::vector<Fd> strangers;
  {
    const NoMemoryElsewhere scarcity;
    for (int i = 0; i < 10; ++i) {
      strangers.push_back(knock(listener.port()));
      say(strangers.back(), encode(Hello()));
    }
    EXPECT_TRUE(scarcity.was_missed(10));
  }
  strangers.clear();
  std::optional<Channel> server;
  Channel client = Channel::connect(listener.address(), channel_options(tcp));
  while (!server) {
    try {
      server.emplace(listener.accept());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResource) << error.what();
    }
  }
  client.send("still there?");
  EXPECT_EQ(server->receive().text(), "still there?");
}

// Parameter: cipher.
class SteadyStream : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Ciphers, SteadyStream,
                         testing::Values("aes-256-gcm", "aes-128-gcm", "chacha20-poly1305"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(SteadyStream, OfSealedMessagesAllocatesNothingInEitherThread) {
  ASSERT_TRUE(counts_openssl) << "OpenSSL allocated something before main()";
  const std::size_t before_some = allocations;
  OPENSSL_free(OPENSSL_malloc(1));
  ::operator delete(::operator new(1));
  ASSERT_EQ(allocations, before_some + 2) << "not all are counted";
  Options options = channel_options({"sealed+ring", "shm"});
  options.sealed_cipher = GetParam();
  options.ring_bytes = std::size_t{256} << 10;
  Listener listener("127.0.0.1:0", options);
  Channel sender = Channel::connect(listener.address(), options);
  Channel receiver = listener.accept();
  // Each side passes the ring's end several times before it is counted, and again while it is.
  constexpr std::size_t kWarmUp = 5'000;
  const std::size_t counted = scaled(20'000);
  for (const std::size_t bytes : {64U, 4096U}) {
    const std::vector<std::byte> message(bytes, std::byte{1});
    const auto allocations_in = [&](const auto& pass) {
      for (std::size_t i = 0; i < kWarmUp; ++i) pass();
      const std::size_t before = allocations;
      for (std::size_t i = 0; i < counted; ++i) pass();
      return allocations - before;
    };
    std::size_t of_sender = 0;
    std::thread sending([&] { of_sender = allocations_in([&] { sender.send(message); }); });
    std::size_t received = 0;
    const std::size_t of_receiver =
        allocations_in([&] { received += receiver.receive().bytes().size(); });
    sending.join();
    EXPECT_EQ(received, (kWarmUp + counted) * bytes);
    EXPECT_EQ(of_sender, 0U) << bytes;
    EXPECT_EQ(of_receiver, 0U) << bytes;
  }
}

}  // namespace
}  // namespace leat::detail
