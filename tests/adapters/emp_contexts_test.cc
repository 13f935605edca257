// Protocols of emp-tool in contexts of one connection, and messages read where they arrive.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "adapters/emp_test.h"

namespace leat::detail {
namespace {

class EmpContexts : public EmpTest {};

// Sends one buffer's worth and a flush at a time, so that messages of all contexts interleave.
void play_protocol(Modern& io, std::uint64_t seed) {
  for (std::uint64_t round = 0; round < scaled(300); ++round) {
    const std::uint64_t key = seed * 1'000'003 + round;
    const std::size_t bytes = key % 5 == 0 ? 200'000 : key % 700;
    send_bytes(io, bytes, 2 * key + io.is_server);
    if (key % 3 == 0) io.flush();
    expect_bytes(io, bytes, 2 * key + !io.is_server);
  }
  io.sync();
}

TEST_P(EmpContexts, ProtocolsOfSeveralThreadsShareOneConnection) {
  constexpr unsigned kProtocols = 5;
  const auto play = [](Peer&, Modern& io) {
    std::vector<std::thread> threads;
    for (unsigned number = 1; number < kProtocols; ++number)
      threads.emplace_back([&io, number] { play_protocol(*io.context(number), number); });
    play_protocol(io, 0);
    for (std::thread& thread : threads) thread.join();
    io.sync();
  };
  run<Modern>(play, play);
}

TEST_P(EmpContexts, ProtocolsOfSeveralThreadsShareOneConnectionThroughATemplate) {
  const auto play = [](Peer&, Late& io) {
    std::thread other([&io] {
      const auto mine = io.context(7);
      follow_script(*mine, mine->is_server);
    });
    follow_script(io, io.is_server);
    other.join();
    io.sync();
  };
  run<Late>(play, play);
}

// A thread that waits in one context leads, and is asked for the messages of another.
TEST_P(EmpContexts, AWaitInOneContextDoesNotDelayAnother) {
  run<Modern>(
      [](Peer& peer, Modern& io) {
        std::thread sleeper([&io] { expect_bytes(*io.context(1), 16, 1); });
        peer.hear("begin");
        for (std::uint64_t round = 0; round < scaled(300); ++round) {
          send_bytes(io, 16, 2 * round);
          expect_bytes(io, 16, 2 * round + 1);
        }
        peer.tell("enough");
        sleeper.join();
      },
      [](Peer& peer, Modern& io) {
        peer.tell("begin");
        for (std::uint64_t round = 0; round < scaled(300); ++round) {
          expect_bytes(io, 16, 2 * round);
          send_bytes(io, 16, 2 * round + 1);
        }
        io.flush();
        peer.hear("enough");
        send_bytes(*io.context(1), 16, 1);
      });
}

// Both parties fill context 1, whose readers come late, while context 0 goes on.
TEST_P(EmpContexts, AContextWithoutRoomDoesNotDelayAnother) {
  constexpr std::size_t kBytes = 8'000'000;
  const auto play = [](Peer& peer, Modern& io) {
    std::thread filler([&io] {
      const auto other = io.context(1);
      send_bytes(*other, kBytes, 1);
      expect_bytes(*other, kBytes, 1);
    });
    for (std::uint64_t round = 0; round < scaled(300); ++round) {
      send_bytes(io, 1'000, round);
      expect_bytes(io, 1'000, round);
    }
    io.sync();
    filler.join();
    peer.barrier();
  };
  run<Modern>(play, play);
}

TEST_P(EmpContexts, ContextsAreTakenOnceAndSiblingsInOrder) {
  const auto play = [](Peer& peer, Modern& io) {
    expect_error(ErrorCode::kInvalidArgument, [&] { (void)io.context(0); });
    expect_error(ErrorCode::kInvalidArgument, [&] { (void)io.context(kContexts); });
    auto three = io.context(3);
    std::vector<std::unique_ptr<Modern>> siblings;
    for (unsigned i = 2; i < kContexts; ++i) siblings.push_back(io.make_sibling());
    expect_error(ErrorCode::kInvalidArgument, [&] { (void)io.make_sibling(); });
    three.reset();
    three = io.make_sibling();
    send_bytes(*three, 100, 3);  // in context 3, which is the only one that was free
    for (std::uint64_t i = 0; i < siblings.size(); ++i) send_bytes(*siblings[i], 100, 100 + i);
    expect_bytes(*three, 100, 3);
    for (std::uint64_t i = 0; i < siblings.size(); ++i) expect_bytes(*siblings[i], 100, 100 + i);
    peer.barrier();
  };
  run<Modern>(play, play);
}

TEST_P(EmpContexts, AContextOutlivesTheChannelThatConnected) {
  const int port = free_port();
  const std::string host = server_host(kind());
  const auto play = [&](Peer& peer, const char* address) {
    std::unique_ptr<Modern> other;
    {
      Modern io(address, port, true, channel_options(kind()));
      other = io.context(1);
    }
    send_bytes(*other, 100, 1);
    expect_bytes(*other, 100, 1);
    peer.barrier();
  };
  run_pair(
      mode(), [&](Peer& peer) { play(peer, nullptr); },
      [&](Peer& peer) { play(peer, host.c_str()); });
}

// Views and places.

constexpr std::size_t kRowBytes = 256;  // of an IKNP matrix

template <typename Io>
void send_rows(Io& io, std::uint64_t count, bool in_place) {
  for (std::uint64_t row = 0; row < count; ++row) {
    const std::vector<std::byte> bytes = pattern(kRowBytes, row);
    if (in_place) {
      void* const place = io.send_place(kRowBytes);
      std::memcpy(place, bytes.data(), kRowBytes);
      io.send_data(place, kRowBytes);
    } else {
      io.send_data(bytes.data(), kRowBytes);
    }
  }
  io.flush();
}

template <typename Io>
void view_rows(Io& io, std::uint64_t count) {
  for (std::uint64_t row = 0; row < count; ++row) {
    const auto* const view = static_cast<const std::byte*>(io.receive_view(kRowBytes));
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(view) % 16, 0u);
    ASSERT_EQ(pattern_mismatch({view, kRowBytes}, row), kRowBytes);
  }
}

TEST_P(EmpContexts, RowsAreReadWhereTheyArrive) {
  const std::uint64_t rows = scaled(5'000);
  run<Modern>(
      [&](Peer& peer, Modern& io) {
        send_rows(io, rows, true);
        EXPECT_EQ(io.bytes_sent, rows * kRowBytes);
        EXPECT_LE(io.channel().stats().sent_messages,
                  rows * kRowBytes / adapters::EmpStream::kGatherBytes + 1);
        send_rows(io, rows, false);
        peer.hear("read");
      },
      [&](Peer& peer, Modern& io) {
        view_rows(io, rows);
        view_rows(io, rows);
        EXPECT_EQ(io.copied_bytes(), 0u);
        EXPECT_EQ(io.bytes_recv, 2 * rows * kRowBytes);
        peer.tell("read");
      });
}

TEST_P(EmpContexts, RowsAreReadWhereTheyArriveThroughATemplate) {
  const std::uint64_t rows = scaled(1'000);
  run<Early>([&](Peer&, Early& io) { send_rows(io, rows, true); },
             [&](Peer&, Early& io) {
               view_rows(io, rows);
               EXPECT_EQ(io.copied_bytes(), 0u);
             });
}

TEST_P(EmpContexts, ViewsOfAnyBytesAreWholeAndAligned) {
  run<Modern>(
      [](Peer&, Modern& io) {
        send_bytes(io, 3, 1);  // the next one is not aligned
        send_bytes(io, 64, 2);
        io.flush();
        send_bytes(io, 100'000, 3);
        send_bytes(io, 100'000, 3);  // in several messages
        void* const large = io.send_place(100'000);
        std::memcpy(large, pattern(100'000, 4).data(), 100'000);
        io.send_data(large, 100'000);
        (void)io.send_place(64);  // not used
        send_bytes(io, 64, 5);
        io.flush();
        send_bytes(io, 8, 6);
      },
      [](Peer&, Modern& io) {
        const auto expect = [&](std::size_t bytes, std::uint64_t seed) {
          const auto* const view = static_cast<const std::byte*>(io.receive_view(bytes));
          EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view) % 16, 0u);
          EXPECT_EQ(pattern_mismatch({view, bytes}, seed), bytes);
        };
        expect(3, 1);
        expect(64, 2);
        expect_bytes(io, 40'000, 3);  // a view of the rest begins within a message
        (void)io.receive_view(60'000);
        expect(100'000, 3);
        expect(100'000, 4);
        expect(64, 5);
        expect(0, 5);
        expect(8, 6);
      });
}

// A peer that breaks its word may write to what it has sent; what was hashed must stay.
TEST_P(EmpContexts, ViewsAreCopiedWhileATranscriptIsKept) {
  run<Modern>(
      [](Peer& peer, Modern& io) {
        io.enable_fs();
        send_rows(io, 10, true);
        EXPECT_EQ(io.sent_digest, 10 * kRowBytes);
        peer.hear("read");
      },
      [](Peer& peer, Modern& io) {
        io.enable_fs();
        view_rows(io, 10);
        EXPECT_EQ(io.received_digest, 10 * kRowBytes);
        EXPECT_EQ(io.copied_bytes(), 10 * kRowBytes);
        peer.tell("read");
      });
}

TEST_P(EmpContexts, MoreThanThePlaceHoldsIsRefused) {
  const auto play = [](Peer& peer, Modern& io) {
    void* const place = io.send_place(16);
    expect_error(ErrorCode::kInvalidArgument, [&] {
      io.send_data(place, static_cast<int>(adapters::EmpStream::kGatherBytes) + 1);
    });
    peer.barrier();
  };
  run<Modern>(play, play);
}

LEAT_INSTANTIATE_CHANNEL_SUITE(EmpContexts);

}  // namespace
}  // namespace leat::detail
