// Mesh: parties over every carrier, as threads and as processes.
#include "leat/scml/party.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "leat/scml/model.h"
#include "support/channel_side.h"
#include "support/devices.h"
#include "support/pattern.h"

namespace leat::scml {
namespace {

using leat::detail::expect_error;
using leat::detail::fill_pattern;
using leat::detail::hang_limit;
using leat::detail::PeerMode;
using leat::detail::run_parties;
using leat::detail::scaled;

constexpr std::uint64_t kRegionBytes = 1 << 20;
constexpr unsigned kMaxThreads = 4;

// A free port P, with P + 1 ... free too; below those that the system gives to whoever asks.
unsigned free_ports(const std::string& host) {
  static std::mt19937 random(static_cast<unsigned>(getpid()));
  for (;;) {
    const auto first =
        static_cast<unsigned>(10'000 + random() % 20'000 / kMaxThreads * kMaxThreads);
    std::vector<leat::detail::Fd> sockets;
    bool all_free = true;
    for (unsigned i = 0; i < kMaxThreads && all_free; ++i) {
      sockets.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<std::uint16_t>(first + i));
      inet_pton(AF_INET, host.c_str(), &address.sin_addr);
      all_free = ::bind(sockets.back().get(), reinterpret_cast<const sockaddr*>(&address),
                        sizeof address) == 0;
    }
    if (all_free) return first;
  }
}

std::vector<std::string> free_addresses(unsigned parties, const std::string& device) {
  std::string host = leat::detail::device_address(device);
  if (host.empty()) host = "127.0.0.1";
  std::vector<std::string> addresses;
  while (addresses.size() < parties) {
    const std::string address = host + ":" + std::to_string(free_ports(host));
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end())
      addresses.push_back(address);
  }
  return addresses;
}

struct Kind {
  Carrier carrier;
  std::string device;
};
void PrintTo(const Kind& kind, std::ostream* out) {
  *out << to_string(kind.carrier) << "_on_" << leat::detail::device_label(kind.device);
}

std::vector<Kind> kinds() {
  std::vector<Kind> all{{Carrier::kTcp, "tcp"}};
  for (const std::string& device : leat::detail::test_devices())
    for (const Carrier carrier : {Carrier::kUnified, Carrier::kContexts, Carrier::kPlanned})
      all.push_back({carrier, device});
  return all;
}

class MeshTest : public testing::TestWithParam<std::tuple<Kind, PeerMode>> {
 protected:
  const Kind& kind() const { return std::get<0>(GetParam()); }
  PeerMode mode() const { return std::get<1>(GetParam()); }

  MeshOptions options(const std::vector<std::string>& addresses, unsigned self) const {
    MeshOptions options;
    options.addresses = addresses;
    options.self = self;
    options.carrier = kind().carrier;
    options.options.device = kind().device;
    options.options.fallback = "never";
    options.options.connect_timeout = hang_limit();
    options.options.timeout = hang_limit();
    options.options.planned_bytes = kRegionBytes;
    return options;
  }

  // Every party with its mesh.
  void run(unsigned parties, const std::function<void(Mesh&)>& body,
           std::optional<unsigned> killed = {}) const {
    const auto addresses = free_addresses(parties, kind().device);
    run_parties(
        mode(), parties,
        [&](unsigned self) {
          Mesh mesh(options(addresses, self));
          EXPECT_EQ(mesh.self(), self);
          EXPECT_EQ(mesh.parties(), parties);
          body(mesh);
        },
        killed);
  }
};

std::string test_name(const testing::TestParamInfo<MeshTest::ParamType>& info) {
  return testing::PrintToString(std::get<0>(info.param)) + "_" + to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Carriers, MeshTest,
                         testing::Combine(testing::ValuesIn(kinds()),
                                          testing::Values(PeerMode::kThreads,
                                                          PeerMode::kProcesses)),
                         test_name);

std::vector<Flow> all_flows(unsigned parties) {
  std::vector<Flow> flows;
  for (unsigned from = 0; from < parties; ++from)
    for (unsigned to = 0; to < parties; ++to)
      if (from != to) flows.push_back({from, to});
  return flows;
}

// Messages [index, index + count) of an array in a round, from one party to another.
std::vector<std::byte> messages(const leat::MessageArray& array, std::uint64_t round, unsigned from,
                                unsigned to, std::uint64_t index, std::uint64_t count) {
  std::vector<std::byte> bytes(array.message_bytes * count);
  for (std::uint64_t i = 0; i < count; ++i)
    fill_pattern(std::span(bytes).subspan(i * array.message_bytes, array.message_bytes),
                 ((round * kMaxParties + from) * kMaxParties + to) << 32 | (index + i));
  return bytes;
}

testing::AssertionResult same(std::span<const std::byte> got,
                              const std::vector<std::byte>& expected) {
  if (std::equal(got.begin(), got.end(), expected.begin(), expected.end()))
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << got.size() << " bytes that differ from what was sent";
}

void expect_text(const leat::Error& error, const std::string& part) {
  EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
}

struct Piece {
  unsigned peer;
  std::uint64_t index, count;
};

// [0, count) for each peer, in pieces, in random order.
std::vector<Piece> random_pieces(const std::vector<unsigned>& peers, std::uint64_t count,
                                 std::uint64_t most, std::mt19937& random) {
  std::vector<Piece> pieces;
  for (const unsigned peer : peers) {
    for (std::uint64_t at = 0; at < count;) {
      const std::uint64_t n = std::min<std::uint64_t>(1 + random() % most, count - at);
      pieces.push_back({peer, at, n});
      at += n;
    }
  }
  std::shuffle(pieces.begin(), pieces.end(), random);
  return pieces;
}

// Random arrays, flows, cuts and orders; every view is looked at once more before close.
TEST_P(MeshTest, AnyArraysInAnyOrder) {
  for (const unsigned parties : {2U, 3U, 4U}) {
    run(parties, [&](Mesh& mesh) {
      std::mt19937 shapes(parties);  // the same at all parties
      std::mt19937 cuts(100 + mesh.self());
      const std::size_t rounds = scaled(30);
      for (std::uint64_t round = 0; round < rounds; ++round) {
        const auto context = static_cast<unsigned>(1 + shapes() % 15);
        leat::MessageArray array;
        const bool large = shapes() % 4 == 0;
        array.message_bytes = static_cast<std::uint32_t>(1 + shapes() % (large ? 20'000 : 200));
        array.count = 1 + shapes() % (large ? 20 : 1'000);
        array.base_bytes = shapes() % ((kRegionBytes - 400'000) / 64) * 64;
        std::vector<Flow> flows;
        for (const Flow& flow : all_flows(parties))
          if (shapes() % 4 != 0) flows.push_back(flow);
        std::vector<unsigned> receivers;
        std::vector<unsigned> senders;
        for (const Flow& flow : flows) {
          if (flow.sender == mesh.self()) receivers.push_back(flow.receiver);
          if (flow.receiver == mesh.self()) senders.push_back(flow.sender);
        }
        mesh.open(context, array, flows);
        mesh.select(context);
        for (const Piece& piece :
             random_pieces(receivers, array.count, 1 + cuts() % array.count, cuts)) {
          const auto bytes =
              messages(array, round, mesh.self(), piece.peer, piece.index, piece.count);
          if (cuts() % 4 == 0) {
            const auto room = mesh.reserve(piece.peer, piece.index, piece.count);
            ASSERT_EQ(room.size(), bytes.size());
            std::copy(bytes.begin(), bytes.end(), room.begin());
            mesh.commit(piece.peer);
          } else {
            mesh.send(piece.peer, piece.index, bytes);
          }
        }
        std::vector<std::pair<Piece, std::span<const std::byte>>> views;
        for (const Piece& piece :
             random_pieces(senders, array.count, 1 + cuts() % array.count, cuts))
          views.emplace_back(piece, mesh.receive(piece.peer, piece.index, piece.count));
        for (const unsigned peer : senders)
          views.push_back({{peer, 0, array.count}, mesh.receive(peer, 0, array.count)});
        for (const auto& [piece, view] : views)
          EXPECT_TRUE(same(
              view, messages(array, round, piece.peer, mesh.self(), piece.index, piece.count)));
        mesh.close(context);
        EXPECT_FALSE(mesh.is_open(context));
      }
      mesh.barrier();
    });
  }
}

// More than any buffer holds, from all to all, before anybody receives; several contexts at a time.
TEST_P(MeshTest, AllSendBeforeTheyReceive) {
  const leat::MessageArray array{
      .base_bytes = 0, .message_bytes = 64, .count = std::max<std::size_t>(1'500, scaled(5'000))};
  run(4, [&](Mesh& mesh) {
    const auto flows = all_flows(mesh.parties());
    for (unsigned context = 1; context <= 3; ++context) {
      leat::MessageArray placed = array;
      placed.base_bytes = (context - 1) * 5'000 * 64;
      mesh.open(context, placed, flows);
    }
    const auto peer_after = [&](unsigned step) { return (mesh.self() + step) % mesh.parties(); };
    for (unsigned context = 1; context <= 3; ++context) {
      mesh.select(context);
      // Downwards and one by one: nothing can be merged.
      for (std::uint64_t i = array.count; i-- > 0;)
        for (unsigned step = 1; step < mesh.parties(); ++step)
          mesh.send(peer_after(step), i,
                    messages(array, context, mesh.self(), peer_after(step), i, 1));
    }
    for (unsigned context = 3; context >= 1; --context) {
      mesh.select(context);
      for (unsigned step = 1; step < mesh.parties(); ++step)
        EXPECT_TRUE(same(mesh.receive(peer_after(step), 0, array.count),
                         messages(array, context, peer_after(step), mesh.self(), 0, array.count)));
      mesh.close(context);
    }
  });
}

// Views stay although far more than a ring comes after them.
TEST_P(MeshTest, ViewsLastUntilClose) {
  const leat::MessageArray array{.base_bytes = 0, .message_bytes = 8'192, .count = 100};
  run(2, [&](Mesh& mesh) {
    const unsigned peer = 1 - mesh.self();
    const std::vector<Flow> flows{{0, 1}};
    const std::vector<Flow> back{{1, 0}};
    for (std::uint64_t round = 0; round < 6; ++round) {
      const leat::MessageArray other{.base_bytes = 900'032, .message_bytes = 8'192, .count = 10};
      mesh.open(1, array, flows);
      mesh.open(2, other, back);
      mesh.select(1);
      if (mesh.self() == 0) {
        for (std::uint64_t i = 0; i < array.count; ++i)
          mesh.send(peer, i, messages(array, round, 0, 1, i, 1));
        mesh.select(2);
        EXPECT_TRUE(same(mesh.receive(peer, 0, 10), messages(other, round, 1, 0, 0, 10)));
      } else {
        std::vector<std::span<const std::byte>> views;
        for (std::uint64_t i = 0; i < array.count; ++i) views.push_back(mesh.receive(peer, i, 1));
        for (std::uint64_t i = 0; i < array.count; ++i)
          EXPECT_TRUE(same(views[i], messages(array, round, 0, 1, i, 1)));
        mesh.select(2);
        mesh.send(peer, 0, messages(other, round, 1, 0, 0, 10));
      }
      mesh.close(1);
      mesh.close(2);
    }
  });
}

TEST_P(MeshTest, LikeASocketWithoutIndexes) {
  const leat::MessageArray array{.base_bytes = 64, .message_bytes = 4, .count = 100};
  run(3, [&](Mesh& mesh) {
    mesh.open(5, array, all_flows(3));
    mesh.select(5);
    for (const std::uint64_t n : {1, 9, 90}) {
      for (unsigned peer = 0; peer < 3; ++peer)
        if (peer != mesh.self())
          mesh.send(peer, messages(array, 0, mesh.self(), peer, n / 10 * 10 / 9, n));
      for (unsigned peer = 0; peer < 3; ++peer)
        if (peer != mesh.self()) {
          EXPECT_TRUE(same(mesh.receive(peer, n),
                           messages(array, 0, peer, mesh.self(), n / 10 * 10 / 9, n)));
        }
    }
    expect_error(ErrorCode::kInvalidArgument, [&] { (void)mesh.receive((mesh.self() + 1) % 3); });
    mesh.close(5);
    mesh.barrier();
  });
}

TEST_P(MeshTest, SixteenParties) {
  const leat::MessageArray array{.base_bytes = 0, .message_bytes = 12, .count = 30};
  run(kMaxParties, [&](Mesh& mesh) {
    for (std::uint64_t round = 0; round < 3; ++round) {
      mesh.open(1, array, all_flows(kMaxParties));
      mesh.select(1);
      for (unsigned peer = 0; peer < kMaxParties; ++peer)
        if (peer != mesh.self())
          mesh.send(peer, 0, messages(array, round, mesh.self(), peer, 0, array.count));
      for (unsigned peer = 0; peer < kMaxParties; ++peer)
        if (peer != mesh.self()) {
          EXPECT_TRUE(same(mesh.receive(peer, 0, array.count),
                           messages(array, round, peer, mesh.self(), 0, array.count)));
        }
      mesh.close(1);
      mesh.barrier();
    }
  });
}

// One mesh per thread; the threads share an array by global indexes.
TEST_P(MeshTest, OneMeshForEachThread) {
  const auto addresses = free_addresses(2, kind().device);
  const leat::MessageArray array{
      .base_bytes = 0, .message_bytes = 16, .count = 400, .incoming = 100};
  run_parties(mode(), 2, [&](unsigned self) {
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < kMaxThreads; ++number) {
      threads.emplace_back([&, number] {
        MeshOptions mine = options(addresses, self);
        mine.thread = number;
        Mesh mesh(mine);
        EXPECT_EQ(mesh.thread(), number);
        mesh.open(1, array, all_flows(2));
        mesh.select(1);
        mesh.send(1 - self, number * 100, messages(array, 0, self, 1 - self, number * 100, 100));
        EXPECT_TRUE(same(mesh.receive(1 - self, number * 100, 100),
                         messages(array, 0, 1 - self, self, number * 100, 100)));
        mesh.close(1);
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_P(MeshTest, NobodyLeavesABarrierBeforeAllAreThere) {
  const leat::MessageArray array{.base_bytes = 0, .message_bytes = 1, .count = 1};
  run(3, [&](Mesh& mesh) {
    for (int i = 0; i < 20; ++i) {
      // Party 2 comes last.
      mesh.open(1, array, std::vector<Flow>{{2, 0}, {2, 1}});
      mesh.select(1);
      if (mesh.self() == 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        for (unsigned peer = 0; peer < 2; ++peer)
          mesh.send(peer, 0, messages(array, 0, 2, peer, 0, 1));
      }
      mesh.barrier();
      // What a party sent before is here without any wait.
      const Stats before = mesh.stats();
      if (mesh.self() != 2) {
        EXPECT_TRUE(same(mesh.receive(2, 1), messages(array, 0, 2, mesh.self(), 0, 1)));
      }
      EXPECT_EQ(mesh.stats().sleeps, before.sleeps);
      mesh.close(1);
    }
  });
}

TEST_P(MeshTest, AnyStartOrder) {
  for (const std::vector<unsigned>& delays :
       {std::vector<unsigned>{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}}) {
    const auto addresses = free_addresses(3, kind().device);
    run_parties(mode(), 3, [&](unsigned self) {
      std::this_thread::sleep_for(std::chrono::milliseconds(60 * delays[self]));
      Mesh mesh(options(addresses, self));
      mesh.barrier();
    });
  }
}

// --- errors

TEST_P(MeshTest, CallsThatContradictTheArraysDoNothing) {
  const leat::MessageArray array{.base_bytes = 128, .message_bytes = 8, .count = 10};
  run(3, [&](Mesh& mesh) {
    const auto invalid = [](const std::function<void()>& call) {
      expect_error(ErrorCode::kInvalidArgument, call);
    };
    const std::vector<Flow> flows{{0, 1}, {1, 0}, {1, 2}};
    const unsigned peer = mesh.self() == 1 ? 0 : 1;
    const std::vector<std::byte> bytes(800);
    const std::span<const std::byte> one = std::span(bytes).first(8);
    invalid([&] { mesh.select(1); });
    invalid([&] { mesh.close(1); });
    invalid([&] { mesh.send(peer, 0, one); });
    mesh.open(1, array, flows);
    invalid([&] { mesh.send(peer, 0, one); });  // not selected
    invalid([&] { mesh.open(1, array, flows); });
    invalid([&] { mesh.open(0, array, flows); });
    invalid([&] { mesh.open(16, array, flows); });
    const auto opens = [&](leat::MessageArray other, const std::vector<Flow>& theirs) {
      invalid([&] { mesh.open(2, other, theirs); });
      EXPECT_FALSE(mesh.is_open(2));
    };
    opens({.base_bytes = 64, .message_bytes = 8, .count = 9}, flows);  // overlaps
    opens({.base_bytes = 4, .message_bytes = 8, .count = 1}, flows);
    opens({.base_bytes = kRegionBytes, .message_bytes = 1, .count = 1}, flows);
    opens({.base_bytes = UINT64_MAX - 63, .message_bytes = 8, .count = 10}, flows);
    opens({.base_bytes = 0, .message_bytes = 0, .count = 1}, flows);
    opens({.base_bytes = 0, .message_bytes = 1, .count = 0}, flows);
    opens({.base_bytes = 0, .message_bytes = 1, .count = UINT64_MAX}, flows);
    opens({.base_bytes = 0, .message_bytes = 1, .count = 1, .incoming = 2}, flows);
    opens({.base_bytes = 0, .message_bytes = 1, .count = 1}, {{0, 3}});
    opens({.base_bytes = 0, .message_bytes = 1, .count = 1}, {{1, 1}});
    mesh.select(1);
    invalid([&] { mesh.send(mesh.self(), 0, one); });
    invalid([&] { mesh.send(3, 0, one); });
    invalid([&] { (void)mesh.receive(3, 0, 1); });
    invalid([&] { mesh.commit(peer); });
    if (mesh.self() == 0) {
      invalid([&] { mesh.send(2, 0, one); });  // no such flow
      invalid([&] { (void)mesh.receive(2, 0, 1); });
    }
    if (mesh.self() != 2) {
      invalid([&] { mesh.send(peer, 10, one); });
      invalid([&] { mesh.send(peer, UINT64_MAX, one); });
      invalid([&] { mesh.send(peer, 9, std::span(bytes).first(16)); });
      invalid([&] { mesh.send(peer, 0, std::span(bytes).first(7)); });
      invalid([&] { mesh.send(peer, 0, {}); });
      invalid([&] { (void)mesh.reserve(peer, 8, 3); });
      invalid([&] { (void)mesh.reserve(peer, 0, 0); });
      invalid([&] { (void)mesh.receive(peer, 10, 1); });
      invalid([&] { (void)mesh.receive(peer, 0, 0); });
      invalid([&] { (void)mesh.receive(peer, 1, UINT64_MAX); });
    }
    // All goes on as if nothing had been.
    if (mesh.self() != 2) mesh.send(peer, 0, messages(array, 0, mesh.self(), peer, 0, 10));
    if (mesh.self() == 1) mesh.send(2, 0, messages(array, 0, 1, 2, 0, 10));
    EXPECT_TRUE(same(mesh.receive(peer, 0, 10), messages(array, 0, peer, mesh.self(), 0, 10)));
    mesh.close(1);
  });
}

TEST_P(MeshTest, AMessageIdSeenTwice) {
  const leat::MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 10};
  run(2, [&](Mesh& mesh) {
    mesh.open(1, array, std::vector<Flow>{{0, 1}});
    mesh.select(1);
    if (mesh.self() == 0) {
      mesh.send(1, 3, messages(array, 0, 0, 1, 3, 1));
      mesh.send(1, 2, messages(array, 0, 0, 1, 2, 2));
      expect_error(ErrorCode::kPeerDied, [&] { mesh.barrier(); });
    } else {
      for (int twice = 0; twice < 2; ++twice) {
        try {
          (void)mesh.receive(0, 0, 4);
          ADD_FAILURE() << "nothing was thrown";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kProtocol) << error.what();
          expect_text(error, "party 0");
        }
      }
    }
  });
}

// Party 2 is killed, each of the others waits in another call: all name it.
TEST_P(MeshTest, ADeathIsNamedByAll) {
  if (mode() == PeerMode::kThreads) return;  // a thread cannot die alone
  const leat::MessageArray array{.base_bytes = 0, .message_bytes = 64, .count = 10'000};
  for (const int waits_for : {1, 2}) {
    run(
        4,
        [&](Mesh& mesh) {
          mesh.open(1, array, all_flows(4));
          mesh.select(1);
          if (mesh.self() == 2) {
            mesh.barrier();
            mesh.send(0, 0, messages(array, 0, 2, 0, 0, 7));
            mesh.flush();
            kill(getpid(), SIGKILL);
          }
          const unsigned peer = waits_for == 2 || mesh.self() == 1 ? 2 : 1;
          try {
            mesh.barrier();  // which it may still be in when party 2 dies
            if (mesh.self() == 3) {
              mesh.barrier();
            } else {
              (void)mesh.receive(peer, 0, array.count);
            }
            ADD_FAILURE() << "nothing was thrown";
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::kPeerDied) << error.what();
            expect_text(error, "party 2");
          }
        },
        2);
  }
}

TEST_P(MeshTest, AnEndInOrderIsNoDeath) {
  const leat::MessageArray array{.base_bytes = 0, .message_bytes = 1'000, .count = 100};
  run(3, [&](Mesh& mesh) {
    mesh.open(1, array, std::vector<Flow>{{0, 1}, {1, 0}, {2, 0}, {2, 1}});
    mesh.select(1);
    for (unsigned peer = 0; peer < 2; ++peer)
      if (peer != mesh.self())
        mesh.send(peer, 0, messages(array, 0, mesh.self(), peer, 0, array.count));
    if (mesh.self() == 2) {
      mesh.flush();
      return;  // the others go on, with its messages and without it
    }
    const unsigned peer = 1 - mesh.self();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(
        same(mesh.receive(2, 0, array.count), messages(array, 0, 2, mesh.self(), 0, array.count)));
    EXPECT_TRUE(same(mesh.receive(peer, 0, array.count),
                     messages(array, 0, peer, mesh.self(), 0, array.count)));
    mesh.close(1);
    mesh.open(1, array, std::vector<Flow>{{0, 1}, {1, 0}});
    mesh.select(1);
    mesh.send(peer, 0, messages(array, 1, mesh.self(), peer, 0, array.count));
    EXPECT_TRUE(same(mesh.receive(peer, 0, array.count),
                     messages(array, 1, peer, mesh.self(), 0, array.count)));
    mesh.close(1);
    try {
      mesh.barrier();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kPeerDied);
      expect_text(error, " ended");
    }
  });
}

TEST_P(MeshTest, Timeout) {
  const auto addresses = free_addresses(2, kind().device);
  const leat::MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 1};
  run_parties(mode(), 2, [&](unsigned self) {
    MeshOptions mine = options(addresses, self);
    if (self == 0) mine.options.timeout = std::chrono::milliseconds(30);
    Mesh mesh(mine);
    mesh.open(1, array, std::vector<Flow>{{1, 0}});
    mesh.select(1);
    if (self == 0) {
      expect_error(ErrorCode::kTimeout, [&] { (void)mesh.receive(1, 0, 1); });
    } else {
      expect_error(ErrorCode::kPeerDied, [&] { mesh.barrier(); });
    }
  });
}

// --- meeting

TEST_P(MeshTest, OptionsThatCannotBe) {
  const auto addresses = free_addresses(3, kind().device);
  const auto refused = [&](const std::function<void(MeshOptions&)>& spoil) {
    MeshOptions wrong = options(addresses, 1);
    spoil(wrong);
    expect_error(ErrorCode::kInvalidArgument, [&] { Mesh mesh(wrong); });
  };
  refused([](MeshOptions& wrong) { wrong.self = 3; });
  refused([](MeshOptions& wrong) { wrong.addresses.resize(1); });
  refused([](MeshOptions& wrong) { wrong.addresses.resize(17, "127.0.0.1:1"); });
  refused([](MeshOptions& wrong) { wrong.addresses[2] = wrong.addresses[1]; });
  refused([](MeshOptions& wrong) { wrong.addresses[0] = "127.0.0.1"; });
  refused([](MeshOptions& wrong) { wrong.addresses[0] = "127.0.0.1:http"; });
  refused([](MeshOptions& wrong) { wrong.addresses[0] = "127.0.0.1:70000"; });
  refused([](MeshOptions& wrong) { wrong.thread = 60'000; });
  refused([](MeshOptions& wrong) { wrong.options.planned_bytes = std::size_t{1} << 50; });
}

TEST_P(MeshTest, WhoIsMissingIsNamed) {
  const auto addresses = free_addresses(3, kind().device);
  run_parties(mode(), 2, [&](unsigned self) {
    MeshOptions mine = options(addresses, 2 * self);
    mine.options.connect_timeout =
        std::chrono::milliseconds(kind().device == "shm" || kind().device == "tcp" ? 1'000 : 8'000);
    try {
      Mesh mesh(mine);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::kTimeout || error.code() == ErrorCode::kRefused)
          << error.what();
      expect_text(error, "party 1");
    }
  });
}

std::string refusal(const MeshOptions& options) {
  try {
    Mesh mesh(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "it was not refused";
  return {};
}

// A mesh comes about although others come before who do not belong to it; those are told why.
TEST_P(MeshTest, OthersAreTurnedAwayAndToldWhy) {
  const auto addresses = free_addresses(4, kind().device);
  const std::vector<std::string> both(addresses.begin(), addresses.begin() + 2);
  using testing::HasSubstr;
  run_parties(mode(), 2, [&](unsigned self) {
    if (self == 1) {
      MeshOptions wrong = options({addresses[0], addresses[2], addresses[3]}, 1);
      EXPECT_THAT(refusal(wrong),
                  HasSubstr("the number of parties is 2 at party 0 and 3 at party 1"));
      if (kind().carrier != Carrier::kPlanned) {  // there the transport refuses, and says it too
        wrong = options(both, 1);
        wrong.options.planned_bytes = kRegionBytes / 2;
        EXPECT_THAT(refusal(wrong), HasSubstr("planned_bytes are "));
      }
      if (kind().carrier == Carrier::kUnified) {
        wrong = options(both, 1);
        wrong.carrier = Carrier::kContexts;
        EXPECT_THAT(refusal(wrong),
                    HasSubstr("the carrier is unified at party 0 and contexts at party 1"));
      }
    }
    Mesh mesh(options(both, self));
    mesh.barrier();
  });
}

TEST_P(MeshTest, StrangersAtTheListenerAreIgnored) {
  const auto addresses = free_addresses(2, kind().device);
  run_parties(mode(), 2, [&](unsigned self) {
    if (self == 0) {
      Mesh mesh(options(addresses, 0));
      mesh.barrier();
      return;
    }
    Options stranger = options(addresses, 1).options;
    stranger.transport = kind().carrier == Carrier::kTcp       ? "tcp"
                         : kind().carrier == Carrier::kPlanned ? "planned"
                                                               : "ring";
    stranger.connect_retry = true;
    const Channel silent = Channel::connect(addresses[0], stranger);
    Channel talking = Channel::connect(addresses[0], stranger);
    talking.send("let me in");
    Channel leaving = Channel::connect(addresses[0], stranger);
    leaving.close();
    const leat::detail::Fd no_leat(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    const std::size_t colon = addresses[0].find(':');
    address.sin_port =
        htons(static_cast<std::uint16_t>(std::stoul(addresses[0].substr(colon + 1))));
    inet_pton(AF_INET, addresses[0].substr(0, colon).c_str(), &address.sin_addr);
    ASSERT_EQ(::connect(no_leat.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
    Mesh mesh(options(addresses, 1));
    mesh.barrier();
  });
}

// Two say that they are party 1. One of them is told that it is not; it goes on as party 2.
TEST_P(MeshTest, TwoWithTheSameNumber) {
  const auto addresses = free_addresses(4, kind().device);
  const auto with = [&](unsigned first) {
    return std::vector<std::string>{addresses[0], addresses[first], addresses[3]};
  };
  run_parties(mode(), 3, [&](unsigned self) {
    if (self == 0) {
      Mesh mesh(options(with(1), 0));
      mesh.barrier();
      return;
    }
    std::optional<Mesh> mesh;
    try {
      mesh.emplace(options(with(self), 1));
    } catch (const Error& error) {
      expect_text(error, "party 1 is connected already");
      mesh.emplace(options(with(3 - self), 2));
    }
    mesh->barrier();
  });
  const Listener holder(addresses[0]);
  expect_error(ErrorCode::kAddress, [&] { Mesh mesh(options(addresses, 0)); });
}

TEST_P(MeshTest, ConnectingToItself) {
  const auto addresses = free_addresses(2, kind().device);
  const std::string everywhere = "0.0.0.0" + addresses[0].substr(addresses[0].find(':'));
  EXPECT_THAT(refusal(options({addresses[0], everywhere, addresses[1]}, 1)),
              testing::HasSubstr("it says that it is party 1, as this one"));
}

// --- plans

constexpr const char* kModel = R"({"name": "tiny", "dataset": "none", "batch_size": 4,
  "input_size": 64, "num_classes": 3, "model": [
    {"layer": "cnn", "input_hw": [8, 8], "in_channels": 1, "out_channels": 2, "filter_hw": [3, 3],
     "stride": 1, "padding": 0},
    {"layer": "relu", "input_dim": 72},
    {"layer": "fc", "input_dim": 72, "output_dim": 3}]})";

Plan tiny_plan(unsigned parties, std::uint64_t batch) {
  return make_plan(parse(read_model(kModel), {.parties = parties, .train = true, .batch = batch}),
                   {});
}

TEST_P(MeshTest, AllMessagesOfAPlan) {
  for (const unsigned parties : {2U, 3U, 4U}) {
    const Plan plan = tiny_plan(parties, 4);
    const auto addresses = free_addresses(parties, kind().device);
    run_parties(mode(), parties, [&](unsigned self) {
      MeshOptions mine = options(addresses, self);
      mine.plan = &plan;
      Mesh mesh(mine);
      for (const Step& step : plan.steps) {
        for (const std::size_t i : step.opens) {
          const Placement& placement = plan.placements[i];
          const leat::MessageArray array{
              .message_bytes = static_cast<std::uint32_t>(placement.messages.message_bytes),
              .count = placement.messages.message_count()};
          mesh.open(placement);
          mesh.select(placement.context);
          std::uint64_t first = 0;
          for (const std::uint64_t count : placement.messages.round_messages) {
            for (const Flow& flow : placement.messages.flows)
              if (flow.sender == self)
                mesh.send(flow.receiver, messages(array, i, self, flow.receiver, first, count));
            for (const Flow& flow : placement.messages.flows)
              if (flow.receiver == self) {
                EXPECT_TRUE(same(mesh.receive(flow.sender, count),
                                 messages(array, i, flow.sender, self, first, count)));
              }
            first += count;
          }
        }
        for (const std::size_t i : step.frees) mesh.close(plan.placements[i].context);
      }
      mesh.barrier();
    });
  }
}

std::string hex(const Plan& plan) {
  std::string text;
  for (const std::uint8_t byte : plan.digest) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

TEST_P(MeshTest, DifferentPlansAreRefusedWithBothDigests) {
  const std::vector<Plan> plans{tiny_plan(2, 4), tiny_plan(2, 5)};
  const auto addresses = free_addresses(2, kind().device);
  run_parties(mode(), 2, [&](unsigned self) {
    MeshOptions mine = options(addresses, self);
    mine.plan = &plans[self];
    if (self == 0) mine.options.connect_timeout = std::chrono::milliseconds(4000);
    try {
      Mesh mesh(mine);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      const bool refused = error.code() == ErrorCode::kInvalidArgument;
      EXPECT_TRUE(refused || self == 0) << error.what();
      // The listening side's transport has logged it; its mesh misses the other party.
      if (self == 0 && kind().carrier == Carrier::kPlanned) return expect_text(error, "party 1");
      expect_text(error, hex(plans[0]));
      expect_text(error, hex(plans[1]));
    }
  });
  MeshOptions wrong = options(free_addresses(3, kind().device), 0);
  wrong.plan = plans.data();
  expect_error(ErrorCode::kInvalidArgument, [&] { Mesh mesh(wrong); });
}

}  // namespace
}  // namespace leat::scml
