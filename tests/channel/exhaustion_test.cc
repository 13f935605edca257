// When a process runs out of descriptors or memory: an error that says so, and life goes on.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "base/system_error.h"
#include "support/channel_side.h"
#include "support/leaks.h"
#include "support/scale.h"

namespace leat::detail {
namespace {

// A limit of this process, until this is destroyed.
class ScratchLimit {
 public:
  ScratchLimit(decltype(RLIMIT_NOFILE) resource, rlim_t value) : resource_(resource) {
    check(getrlimit(resource_, &before_), "getrlimit");
    const rlimit now{value, before_.rlim_max};
    check(setrlimit(resource_, &now), "setrlimit");
  }
  ScratchLimit(const ScratchLimit&) = delete;
  ScratchLimit& operator=(const ScratchLimit&) = delete;
  ~ScratchLimit() { setrlimit(resource_, &before_); }

 private:
  decltype(RLIMIT_NOFILE) resource_;
  rlimit before_{};
};

// The limit that lets a process open `count` descriptors more than it has now.
rlim_t descriptors_left(int count) {
  std::vector<Fd> probes(static_cast<std::size_t>(count) + 1);
  for (Fd& probe : probes) probe = Fd(check(::dup(STDERR_FILENO), "dup"));
  return static_cast<rlim_t>(probes.back().get());  // the lowest that is free comes first
}

std::string word_for(const std::function<void()>& call) {
  try {
    call();
    return "well";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()), "");
    return std::string(to_string(error.code())) + ": " + error.what();
  }
}

// Processes, because limits are a process's.
class ExhaustionTest : public testing::TestWithParam<ChannelKind> {
 protected:
  void SetUp() override {
    if (kAddressSanitizer) GTEST_SKIP() << "the sanitizers' own checks need descriptors";
  }

  Options options() const { return channel_options(GetParam()); }
  std::string any_port() const { return listening_address(GetParam()); }
  bool is_ib() const { return GetParam().device.starts_with("ib"); }

  // What the other side is told, or throws. librdmacm hides the cause of some of its failures, and
  // nobody can be told before TLS stands.
  void expect_clear(const std::string& said) const {
    const char* wanted = is_ib()                                       ? "no device can be used"
                         : GetParam().transport.starts_with("sealed+") ? "TLS handshake failed"
                                                                       : "Too many open files";
    const bool clear = said.find("Too many open files") != std::string::npos ||
                       said.find(wanted) != std::string::npos;
    EXPECT_TRUE(clear) << said;
  }

  void connect_until_it_ends(const std::string& address) const {
    Channel channel = Channel::connect(address, options());
    try {
      while (channel.receive()) {
      }
    } catch (const Error&) {
      // The other side closed it without a word.
    }
  }

  static void await_failure(const Listener& listener) {
    pollfd entry{listener.fd(), POLLIN, 0};
    EXPECT_EQ(poll(&entry, 1, -1), 1);
  }

  static void greet(Channel channel) {
    channel.send("hello");
    EXPECT_EQ(channel.receive().text(), "hello");
  }
  static void try_to_greet(Listener& listener) {
    auto channel = listener.try_accept();
    if (!channel) return;
    try {
      if (channel->receive().text() == "hello") channel->send("hello");
      channel->flush();
    } catch (const Error&) {
      // It failed at its end.
    }
  }
  // The next newcomer that says hello; some failed at their end after they had arrived at ours.
  static void greet_next(Listener& listener) {
    for (;;) {
      Channel channel = listener.accept();
      try {
        if (channel.receive().text() != "hello") continue;
      } catch (const Error&) {
        continue;
      }
      channel.send("hello");
      return;
    }
  }
};

TEST_P(ExhaustionTest, AcceptWithoutDescriptorsSaysSoAndGoesOnLater) {
  run_pair(
      PeerMode::kProcesses,
      [&](Peer& peer) {
        Listener listener(any_port(), options());
        {
          const ScratchLimit none(RLIMIT_NOFILE, descriptors_left(0));
          peer.tell(listener.address());
          for (int i = 0; i < 2; ++i) {
            const std::string said = word_for([&] { (void)listener.accept(); });
            EXPECT_TRUE(said.starts_with("resource: accept at ")) << said;
            EXPECT_NE(said.find("ulimit -n"), std::string::npos) << said;
          }
        }
        greet(listener.accept());  // the newcomer has waited
      },
      [&](Peer& peer) { greet(Channel::connect(peer.hear(), options())); });
}

// A failure that accept() has not told yet is not told once its cause has gone.
TEST_P(ExhaustionTest, AcceptAfterDescriptorsAreFreeAgainSaysNothingOfTheTimeBefore) {
  run_pair(
      PeerMode::kProcesses,
      [&](Peer& peer) {
        Listener listener(any_port(), options());
        {
          const ScratchLimit none(RLIMIT_NOFILE, descriptors_left(0));
          peer.tell(listener.address());
          await_failure(listener);
        }
        greet(listener.accept());
      },
      [&](Peer& peer) { greet(Channel::connect(peer.hear(), options())); });
}

// At a deadline before the next try, the failure is what is known.
TEST_P(ExhaustionTest, AcceptWithoutTimeSaysWhichFailureCameBefore) {
  run_pair(
      PeerMode::kProcesses,
      [&](Peer& peer) {
        Options hurried = options();
        hurried.timeout = std::chrono::milliseconds(1);
        Listener listener(any_port(), hurried);
        {
          const ScratchLimit none(RLIMIT_NOFILE, descriptors_left(0));
          peer.tell(listener.address());
          await_failure(listener);
          const std::string said = word_for([&] { (void)listener.accept(); });
          EXPECT_TRUE(said.starts_with("resource: accept at ")) << said;
        }
        listener.close();
      },
      [&](Peer& peer) {
        EXPECT_NE(word_for([&] { greet(Channel::connect(peer.hear(), options())); }), "well");
      });
}

// Descriptors that run out somewhere within a handshake.
TEST_P(ExhaustionTest, HandshakesWithFewDescriptorsFailAndTheListenerGoesOn) {
  run_pair(
      PeerMode::kProcesses,
      [&](Peer& peer) {
        Listener listener(any_port(), options());
        peer.tell(listener.address());
        int failures = 0;
        for (int left = 1;; ++left) {
          std::string said;
          {
            const ScratchLimit few(RLIMIT_NOFILE, descriptors_left(left));
            peer.tell("connect");
            while (!peer.has_word()) try_to_greet(listener);
            said = peer.hear();
          }
          if (said == "well") break;
          expect_clear(said);
          ++failures;
          peer.tell("connect");
          greet_next(listener);
          EXPECT_EQ(peer.hear(), "well");
        }
        peer.tell("enough");
        EXPECT_GT(failures, 0);
      },
      [&](Peer& peer) {
        const std::string address = peer.hear();
        while (peer.hear() == "connect") {
          // A connection that stands must be good for something.
          peer.tell(word_for([&] { greet(Channel::connect(address, options())); }));
          if (peer.hear() != "connect") break;
          peer.tell(word_for([&] { greet(Channel::connect(address, options())); }));
        }
      });
}

TEST_P(ExhaustionTest, ConnectWithFewDescriptorsSaysSoAndLeavesNone) {
  run_pair(
      PeerMode::kProcesses,
      [&](Peer& peer) {
        Listener listener(any_port(), options());
        peer.tell(listener.address());
        while (!peer.has_word()) (void)listener.try_accept();
        peer.tell("next");
        greet_next(listener);
      },
      [&](Peer& peer) {
        const std::string address = peer.hear();
        // The first try loads what stays: libraries, settings, the counter of holdings. Its
        // connection may linger, in a thread, with a descriptor that must not become free later.
        const std::size_t threads = count_holdings().threads;
        EXPECT_EQ(word_for([&] { connect_until_it_ends(address); }), "well");
        while (count_holdings().threads > threads) std::this_thread::yield();
        const Holdings before = count_holdings();
        int left = 0;
        for (;; ++left) {
          const rlim_t limit = descriptors_left(left);
          std::string said;
          {
            const ScratchLimit few(RLIMIT_NOFILE, limit);
            said = word_for([&] { (void)Channel::connect(address, options()); });
          }
          if (said == "well") break;
          expect_clear(said);
          if (!is_ib()) {
            EXPECT_TRUE(said.starts_with("resource: ")) << said;
          }
        }
        EXPECT_GT(left, 0);
        expect_no_more_than(before, std::size_t{64} << 20);
        peer.tell("now");
        peer.hear("next");
        greet(Channel::connect(address, options()));
      });
}

INSTANTIATE_TEST_SUITE_P(Channels, ExhaustionTest, testing::ValuesIn(channel_kinds()),
                         testing::PrintToStringParamName());

// Address space is what a sanitizer takes most of.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

std::size_t mapped_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages;
  return pages * 4096;
}

Options with_huge_rings() {
  Options options = channel_options({"ring", "shm"});
  options.ring_bytes = std::size_t{1} << 30;
  options.ring_context_bytes = std::size_t{1} << 30;
  return options;
}

constexpr std::size_t kRoom = std::size_t{256} << 20;  // enough for threads

TEST(MemoryExhaustionTest, AClientWithoutMemoryForItsRingsSaysSo) {
  run_pair(
      PeerMode::kProcesses,
      [](Peer& peer) {
        Listener listener("127.0.0.1:0", channel_options({"ring", "shm"}));
        peer.tell(listener.address());
        while (!peer.has_word()) (void)listener.try_accept();
        peer.tell("next");
        Channel channel = listener.accept();
        EXPECT_EQ(channel.receive().text(), "with less");
      },
      [](Peer& peer) {
        const std::string address = peer.hear();
        {
          const ScratchLimit little(RLIMIT_AS, mapped_bytes() + kRoom);
          const std::string said =
              word_for([&] { (void)Channel::connect(address, with_huge_rings()); });
          EXPECT_TRUE(said.starts_with("resource: ")) << said;
          EXPECT_NE(said.find("Cannot allocate memory"), std::string::npos) << said;
          EXPECT_NE(said.find("ring_bytes"), std::string::npos) << said;
        }
        peer.tell("now");
        peer.hear("next");
        Channel::connect(address, channel_options({"ring", "shm"})).send("with less");
      });
}

TEST(MemoryExhaustionTest, AListenerWithoutMemoryForItsRingsSaysSoAndGoesOn) {
  run_pair(
      PeerMode::kProcesses,
      [](Peer& peer) {
        Listener listener("127.0.0.1:0", with_huge_rings());
        {
          const ScratchLimit little(RLIMIT_AS, mapped_bytes() + kRoom);
          peer.tell(listener.address());
          while (!peer.has_word()) (void)listener.try_accept();
          EXPECT_EQ(peer.hear(), "failed");
        }
        peer.tell("again");
        Channel channel = listener.accept();
        EXPECT_EQ(channel.receive().text(), "with memory");
      },
      [](Peer& peer) {
        const std::string address = peer.hear();
        const Options options = channel_options({"ring", "shm"});
        const std::string said = word_for([&] { (void)Channel::connect(address, options); });
        EXPECT_TRUE(said.starts_with("resource: ")) << said;
        EXPECT_NE(said.find("Cannot allocate memory"), std::string::npos) << said;
        EXPECT_NE(said.find("listener"), std::string::npos) << said;
        peer.tell("failed");
        peer.hear("again");
        Channel::connect(address, options).send("with memory");
      });
}

#endif

}  // namespace
}  // namespace leat::detail
