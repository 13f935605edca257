// Mesh: messages of any arrays, barriers, threads.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "support/channel_side.h"
#include "support/mesh_side.h"

namespace leat::scml {
namespace {

using leat::detail::expect_error;
using leat::detail::run_parties;
using leat::detail::scaled;

class MeshMessages : public MeshTest {};
LEAT_INSTANTIATE_MESH_SUITE(MeshMessages);

// A positive number that one party tells another past the mesh, once.
class Word {
 public:
  Word() : fd_(eventfd(0, EFD_CLOEXEC)) {}
  void say(std::uint64_t number) const { EXPECT_EQ(eventfd_write(fd_.get(), number), 0); }
  bool is_said(std::chrono::milliseconds within = {}) const {
    pollfd polled{fd_.get(), POLLIN, 0};
    return poll(&polled, 1, static_cast<int>(within.count())) == 1;
  }
  std::uint64_t hear() const {
    eventfd_t number = 0;
    if (is_said(leat::detail::hang_limit())) eventfd_read(fd_.get(), &number);
    return number;
  }

 private:
  const leat::detail::Fd fd_;
};

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
TEST_P(MeshMessages, AnyArraysInAnyOrder) {
  for (const unsigned parties : {2U, 3U, 4U}) {
    run(parties, [&](Mesh& mesh) {
      std::mt19937 shapes(parties);  // the same at all parties
      std::mt19937 cuts(100 + mesh.self());
      const std::size_t rounds = scaled(30);
      for (std::uint64_t round = 0; round < rounds; ++round) {
        const auto context =
            static_cast<unsigned>(1 + shapes() % (shapes() % 2 == 0 ? 15 : kContextLimit - 1));
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

// What comes before its array is open waits for it, of two arrays in turn, and of the next array of
// a context, too.
TEST_P(MeshMessages, EarlyMessagesOfSeveralArraysInTurn) {
  const leat::MessageArray one{.base_bytes = 0, .message_bytes = 4, .count = 1};
  const leat::MessageArray many{.base_bytes = 64, .message_bytes = 4, .count = scaled(2'000)};
  const std::array<unsigned, 2> contexts{16, 17};
  run(3, [&](Mesh& mesh) {
    mesh.open(1, one, std::vector<Flow>{{2, 1}});
    leat::MessageArray beside = one;
    beside.base_bytes = 900'032;
    mesh.open(2, beside, std::vector<Flow>{{0, 2}});
    // Party 2 speaks when party 0 has sent what it can without party 1; planned messages of arrays
    // that are not open wait at their sender.
    const bool early = kind().streams();
    const auto signal = [&](unsigned context, unsigned from, unsigned to) {
      mesh.select(context);
      if (mesh.self() == from) mesh.send(to, 0, messages(one, 0, from, to, 0, 1));
      if (mesh.self() == to) (void)mesh.receive(from, 0, 1);
    };
    const auto tell = [&] {
      if (mesh.self() != 1) signal(2, 0, 2);
      if (mesh.self() != 0) signal(1, 2, 1);
    };
    if (!early || mesh.self() == 1) tell();
    for (std::uint64_t round = 0; round < 2; ++round) {
      for (const unsigned context : contexts) {
        leat::MessageArray array = many;
        array.base_bytes += (context - 16) * 400'000;
        mesh.open(context, array, std::vector<Flow>{{0, 1}});
      }
      for (std::uint64_t i = 0; i < many.count; ++i) {
        for (const unsigned context : contexts) {
          mesh.select(context);
          const auto bytes = messages(many, 2 * round + context, 0, 1, i, 1);
          if (mesh.self() == 0) mesh.send(1, i, bytes);
          if (mesh.self() == 1) {
            EXPECT_TRUE(same(mesh.receive(0, i, 1), bytes));
          }
        }
      }
      for (const unsigned context : contexts) mesh.close(context);
    }
    if (early && mesh.self() != 1) tell();
    mesh.barrier();
  });
}

// More than any buffer holds, from all to all, before anybody receives; several contexts at a time.
TEST_P(MeshMessages, AllSendBeforeTheyReceive) {
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

// More arrays than a channel has contexts, which each party opens, fills and reads in an order of
// its own.
TEST_P(MeshMessages, AnArrayInEveryContext) {
  const auto array_of = [](unsigned context) {
    return leat::MessageArray{
        .base_bytes = context * 2'048, .message_bytes = 1 + context, .count = 8};
  };
  run(3, [&](Mesh& mesh) {
    std::mt19937 orders(mesh.self());
    const auto flows = all_flows(mesh.parties());
    std::vector<unsigned> contexts(kContextLimit - kFirstContext);
    std::iota(contexts.begin(), contexts.end(), kFirstContext);
    for (std::uint64_t round = 0; round < 2; ++round) {
      std::shuffle(contexts.begin(), contexts.end(), orders);
      for (const unsigned context : contexts) mesh.open(context, array_of(context), flows);
      for (const auto order : {0, 1}) {
        std::shuffle(contexts.begin(), contexts.end(), orders);
        for (const unsigned context : contexts) {
          const leat::MessageArray array = array_of(context);
          mesh.select(context);
          for (unsigned step = 1; step < mesh.parties(); ++step) {
            const unsigned peer = (mesh.self() + step) % mesh.parties();
            const std::uint64_t seed = round * kContextLimit + context;
            if (order == 0) {
              mesh.send(peer, 0, messages(array, seed, mesh.self(), peer, 0, array.count));
            } else {
              EXPECT_TRUE(same(mesh.receive(peer, 0, array.count),
                               messages(array, seed, peer, mesh.self(), 0, array.count)));
            }
          }
          if (order == 1) mesh.close(context);
        }
      }
    }
  });
}

// Views stay although far more than a ring comes after them.
TEST_P(MeshMessages, ViewsLastUntilClose) {
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

TEST_P(MeshMessages, LikeASocketWithoutIndexes) {
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

TEST_P(MeshMessages, ManyParties) {
  // On ib a connection takes a dozen descriptors, and a process has 1,024 by default.
  const unsigned parties = is_ib(kind().device) ? 5 : kMaxParties;
  const leat::MessageArray array{.base_bytes = 0, .message_bytes = 12, .count = 30};
  run(parties, [&](Mesh& mesh) {
    for (std::uint64_t round = 0; round < 3; ++round) {
      mesh.open(1, array, all_flows(parties));
      mesh.select(1);
      for (unsigned peer = 0; peer < parties; ++peer)
        if (peer != mesh.self())
          mesh.send(peer, 0, messages(array, round, mesh.self(), peer, 0, array.count));
      for (unsigned peer = 0; peer < parties; ++peer)
        if (peer != mesh.self()) {
          EXPECT_TRUE(same(mesh.receive(peer, 0, array.count),
                           messages(array, round, peer, mesh.self(), 0, array.count)));
        }
      mesh.close(1);
      mesh.barrier();
    }
  });
}

TEST_P(MeshMessages, AReservationStaysWhateverIsSelected) {
  const leat::MessageArray first{.base_bytes = 0, .message_bytes = 16, .count = 10};
  const leat::MessageArray second{.base_bytes = 4096, .message_bytes = 8, .count = 5};
  run(2, [&](Mesh& mesh) {
    const unsigned peer = 1 - mesh.self();
    mesh.open(1, first, all_flows(2));
    mesh.open(2, second, all_flows(2));
    mesh.select(1);
    const auto room = mesh.reserve(peer, 0, first.count);
    mesh.select(2);
    mesh.send(peer, 0, messages(second, 0, mesh.self(), peer, 0, second.count));
    std::ranges::copy(messages(first, 0, mesh.self(), peer, 0, first.count), room.begin());
    mesh.commit(peer);
    EXPECT_TRUE(same(mesh.receive(peer, 0, second.count),
                     messages(second, 0, peer, mesh.self(), 0, second.count)));
    mesh.close(2);
    mesh.select(1);
    EXPECT_TRUE(same(mesh.receive(peer, 0, first.count),
                     messages(first, 0, peer, mesh.self(), 0, first.count)));
    mesh.close(1);
    // An array that is closed takes its reservation along.
    expect_error(ErrorCode::kInvalidArgument, [&] { mesh.commit(peer); });
    mesh.barrier();
  });
}

// What found no room leaves by later calls, also if none of them waits: each receive() here finds
// its message at once. With kPlanned the receives that the peer has posted run out, with kTcp the
// kernel's buffers, before the connection's window does; with the others all leaves by itself.
TEST_P(MeshMessages, WhatIsPendingLeavesWithoutAWait) {
  const bool planned = !kind().streams();
  if (!planned && kind().carrier != Carrier::kTcp) return;
  const leat::MessageArray array{.base_bytes = 64,
                                 .message_bytes = planned ? 8U : 4096U,
                                 .count = planned ? 10'000U : 16'000U};
  const leat::MessageArray one{.base_bytes = 0, .message_bytes = 8, .count = 1};
  const auto addresses = free_addresses(3, kind().device);
  const Word sent, has_all;
  run_parties(mode(), 3, [&](unsigned self) {
    MeshOptions mine = options(addresses, self);
    // Of TCP more than any kernel keeps for a receiver that does not read.
    mine.options.planned_bytes = planned ? 8 << 20 : 64 << 20;
    Mesh mesh(mine);
    mesh.open(1, array, std::vector<Flow>{{0, 1}});
    mesh.open(2, one, std::vector<Flow>{{2, 0}});
    if (self == 0) {
      // Every second message, so that none is merged with another.
      std::uint64_t count = 0;
      do {
        mesh.select(1);
        mesh.send(1, 2 * count, messages(array, 0, 0, 1, 2 * count, 1));
        ++count;
        mesh.select(2);
        (void)mesh.receive(2, 0, 1);
      } while (mesh.channel(1).try_flush() && 2 * count < array.count);
      EXPECT_LT(2 * count, array.count) << "all found room";
      sent.say(count);
      while (!has_all.is_said()) (void)mesh.receive(2, 0, 1);
    } else if (self == 1) {
      mesh.select(1);
      const std::uint64_t count = sent.hear();
      EXPECT_GT(count, 0U);
      for (std::uint64_t i = 0; i < count; ++i)
        EXPECT_TRUE(same(mesh.receive(0, 2 * i, 1), messages(array, 0, 0, 1, 2 * i, 1)));
      has_all.say(1);
    } else {
      mesh.select(2);
      mesh.send(0, 0, messages(one, 0, 2, 0, 0, 1));
    }
    mesh.barrier();
  });
}

// One mesh per thread; the threads share an array by global indexes.
TEST_P(MeshMessages, OneMeshForEachThread) {
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

TEST_P(MeshMessages, NobodyLeavesABarrierBeforeAllAreThere) {
  const leat::MessageArray array{.base_bytes = 0, .message_bytes = 1, .count = 1};
  run(3, [&](Mesh& mesh) {
    for (int i = 0; i < 20; ++i) {
      // Party 2 comes last: when both others have said that they go to the barrier.
      mesh.open(1, array, std::vector<Flow>{{2, 0}, {2, 1}, {0, 2}, {1, 2}});
      mesh.select(1);
      if (mesh.self() != 2) mesh.send(2, 0, messages(array, 0, mesh.self(), 2, 0, 1));
      if (mesh.self() == 2) {
        for (unsigned peer = 0; peer < 2; ++peer) EXPECT_EQ(mesh.receive(peer, 1).size(), 1u);
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

TEST_P(MeshMessages, AnyStartOrder) {
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

}  // namespace
}  // namespace leat::scml
