// emp-tool's I/O channel over leat keeps the promises of its NetIO.
#include "leat/adapters/emp.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "adapters/emp_test.h"
#include "adapters/stand_ins/emp_io_channel.h"
#include "support/channel_side.h"
#include "support/free_port.h"

namespace leat::detail {
namespace {

TEST_P(EmpTest, RandomSizesFollowAScript) {
  run<Modern>([](Peer&, Modern& io) { follow_script(io, true); },
              [](Peer&, Modern& io) { follow_script(io, false); });
}

TEST_P(EmpTest, RandomSizesFollowAScriptThroughTheLateTemplate) {
  run<Late>([](Peer&, Late& io) { follow_script(io, true); },
            [](Peer&, Late& io) { follow_script(io, false); });
}

TEST_P(EmpTest, RandomSizesFollowAScriptThroughTheEarlyTemplate) {
  run<Early>([](Peer&, Early& io) { follow_script(io, true); },
             [](Peer&, Early& io) { follow_script(io, false); });
}

TEST_P(EmpTest, WhatWasSentGoesBeforeReceiving) {
  const auto play = [](Peer& peer, Modern& io) {
    const bool first = io.is_server;
    for (std::uint64_t round = 0; round < scaled(2'000); ++round) {
      send_bytes(io, 16, 2 * round + first);
      expect_bytes(io, 16, 2 * round + !first);
    }
    peer.barrier();
  };
  run<Modern>(play, play);
}

TEST_P(EmpTest, FlushSendsAtOnce) {
  run<Modern>(
      [](Peer& peer, Modern& io) {
        send_bytes(io, 16, 1);
        send_bytes(io, 300'000, 2);
        send_bytes(io, 16, 3);
        io.flush();
        peer.hear("received");  // without another call of io
      },
      [](Peer& peer, Modern& io) {
        expect_bytes(io, 16, 1);
        expect_bytes(io, 300'000, 2);
        expect_bytes(io, 16, 3);
        peer.tell("received");
      });
}

TEST_P(EmpTest, WhatWasNotFlushedGoesAtTheEnd) {
  run<Modern>(
      [](Peer&, Modern& io) {
        send_bytes(io, 3'000'000, 1);
        send_bytes(io, 16, 2);
      },
      [](Peer&, Modern& io) {
        expect_bytes(io, 3'000'000, 1);
        expect_bytes(io, 16, 2);
        std::byte more{};
        expect_error(ErrorCode::kPeerDied, [&] { io.recv_data(&more, 1); });
      });
}

TEST_P(EmpTest, BothSidesMaySendAnyAmountBeforeTheyReceive) {
  constexpr std::size_t kBytes = 100'000;
  const auto flood = [](Peer& peer, Modern& io) {
    const std::size_t count = scaled(400);
    send_bytes(io, 10'000, 1);
    io.flush();
    expect_bytes(io, 0, 1);
    std::byte first_byte{};
    io.recv_data(&first_byte, 1);  // now a message is half read
    for (std::uint64_t i = 0; i < count; ++i) send_bytes(io, kBytes, i);
    io.flush();
    std::vector<std::byte> rest(10'000);
    rest[0] = first_byte;
    io.recv_data(&rest[1], 9'999);
    EXPECT_EQ(pattern_mismatch(rest, 1), rest.size());
    for (std::uint64_t i = 0; i < count; ++i) expect_bytes(io, kBytes, i);
    // And all is as usual afterwards.
    send_bytes(io, 16, 7);
    expect_bytes(io, 16, 7);
    peer.barrier();
  };
  run<Modern>(flood, flood);
}

TEST_P(EmpTest, ASendWithoutRoomKeepsTheTimeout) {
  const int port = free_port();
  const std::string host = server_host(kind());
  run_pair(
      mode(),
      [&](Peer& peer) {
        Modern io(nullptr, port, true, channel_options(kind()));
        peer.hear("timed out");  // without reading
      },
      [&](Peer& peer) {
        Options options = channel_options(kind());
        options.timeout = std::chrono::milliseconds(100);
        Modern io(host.c_str(), port, true, options);
        const std::vector<std::byte> data(1'000'000);
        expect_error(ErrorCode::kTimeout, [&] {
          for (int i = 0; i < 10'000; ++i) io.send_data(data.data(), 1'000'000);
        });
        peer.tell("timed out");
      });
}

TEST_P(EmpTest, EverySizeArrives) {
  constexpr std::size_t kSizes[] = {0,      1,       15,      16,        32'767,    32'768,
                                    32'769, 131'072, 131'073, 1'048'575, 4'194'305, 16'777'216};
  run<Modern>(
      [&](Peer&, Modern& io) {
        for (const std::size_t bytes : kSizes) send_bytes(io, bytes, bytes);
        for (const std::size_t bytes : kSizes) expect_bytes(io, bytes, bytes);
      },
      [&](Peer&, Modern& io) {
        for (const std::size_t bytes : kSizes) expect_bytes(io, bytes, bytes);
        for (const std::size_t bytes : kSizes) send_bytes(io, bytes, bytes);
      });
}

TEST_P(EmpTest, SmallSendsAreGatheredAndCounted) {
  const std::size_t blocks = scaled(100'000);
  run<Modern>(
      [&](Peer& peer, Modern& io) {
        for (std::uint64_t i = 0; i < blocks; ++i) {
          const std::uint64_t block[2] = {i, ~i};
          io.send_data(block, sizeof block);
        }
        io.flush();
        EXPECT_EQ(io.counter, blocks * 16);
        EXPECT_EQ(io.bytes_sent, blocks * 16);
        EXPECT_LE(io.channel().stats().sent_messages,
                  blocks * 16 / adapters::EmpStream::kGatherBytes + 1);
        peer.hear("done");
      },
      [&](Peer& peer, Modern& io) {
        std::uint64_t wrong = 0;
        for (std::uint64_t i = 0; i < blocks; ++i) {
          std::uint64_t block[2];
          io.recv_data(block, sizeof block);
          wrong += block[0] != i || block[1] != ~i;
        }
        EXPECT_EQ(wrong, 0u);
        EXPECT_EQ(io.bytes_recv, blocks * 16);
        peer.tell("done");
      });
}

TEST_P(EmpTest, TemplatesCountAsTheirBaseDoes) {
  run<Late>(
      [&](Peer&, Late& io) {
        std::byte bytes[30] = {};
        io.send_data(bytes, 10);
        io.send_bytes(bytes, 20);  // through the base
        EXPECT_EQ(io.counter, 30u);
      },
      [&](Peer&, Late& io) {
        std::byte bytes[30] = {};
        io.recv_bytes(bytes, 30);
      });
  run<Early>([&](Peer&, Early& io) { io.send_bytes(std::vector<std::byte>(30).data(), 30); },
             [&](Peer&, Early& io) { io.recv_bytes(std::vector<std::byte>(30).data(), 30); });
}

TEST_P(EmpTest, SyncWaitsForTheOther) {
  run<Modern>(
      [](Peer& peer, Modern& io) {
        peer.tell("before");
        io.sync();
        send_bytes(io, 8, 1);
      },
      [](Peer& peer, Modern& io) {
        peer.hear("before");
        io.sync();
        expect_bytes(io, 8, 1);
      });
}

TEST_P(EmpTest, NegativeLengthsAreRefused) {
  const auto refuse = [](Peer& peer, Modern& io) {
    std::byte byte{};
    expect_error(ErrorCode::kInvalidArgument, [&] { io.send_data_internal(&byte, -1); });
    expect_error(ErrorCode::kInvalidArgument, [&] { io.recv_data_internal(&byte, -1); });
    peer.barrier();
  };
  run<Modern>(refuse, refuse);
}

TEST_P(EmpTest, TheClientMayStartFirst) {
  const int port = free_port();
  const std::string host = server_host(kind());
  run_pair(
      mode(),
      [&](Peer& peer) {
        peer.hear("knocking");
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // in vain until then
        Modern io(nullptr, port, true, channel_options(kind()));
        expect_bytes(io, 8, 1);
      },
      [&](Peer& peer) {
        peer.tell("knocking");
        Modern io(host.c_str(), port, true, channel_options(kind()));
        send_bytes(io, 8, 1);
      });
}

class EmpDeath : public EmpTest {};  // processes only

TEST_P(EmpDeath, AKilledPeerIsAnError) {
  for (const bool sends : {false, true}) {
    SCOPED_TRACE(sends ? "while sending" : "while receiving");
    run<Modern>(
        [&](Peer& peer, Modern& io) {
          expect_bytes(io, 8, 1);
          peer.kill_other();
          std::vector<std::byte> data(100'000);
          expect_error(ErrorCode::kPeerDied, [&] {
            for (;;) {
              if (sends) {
                io.send_data(data.data(), static_cast<int>(data.size()));
              } else {
                io.recv_data(data.data(), static_cast<int>(data.size()));
              }
            }
          });
        },
        [](Peer& peer, Modern& io) {
          send_bytes(io, 8, 1);
          io.flush();
          peer.await_end();
        },
        SecondEnds::kBySignal);
  }
}

LEAT_INSTANTIATE_CHANNEL_SUITE(EmpTest);
INSTANTIATE_TEST_SUITE_P(Channels, EmpDeath,
                         testing::Combine(testing::ValuesIn(channel_kinds()),
                                          testing::Values(PeerMode::kProcesses)),
                         channel_test_name);

TEST(EmpAddressTest, WrongOnesAreErrors) {
  Options impatient;
  impatient.connect_timeout = std::chrono::milliseconds(100);
  const int port = free_port();
  expect_error_of({ErrorCode::kRefused, ErrorCode::kTimeout},
                  [&] { Modern io("127.0.0.1", port, true, impatient); });
  expect_error_of({ErrorCode::kRefused, ErrorCode::kTimeout},
                  [&] { Late io("127.0.0.1", port, true, impatient); });
  expect_error_of({ErrorCode::kAddress, ErrorCode::kTimeout},
                  [&] { Modern io("no-such-host.invalid", port, true, impatient); });
  for (const int wrong : {-1, 65536}) {
    expect_error(ErrorCode::kInvalidArgument, [&] { Modern io("127.0.0.1", wrong, true); });
    expect_error(ErrorCode::kInvalidArgument, [&] { Modern io(nullptr, wrong, true); });
  }
  const Listener taken(":" + std::to_string(port));
  expect_error(ErrorCode::kAddress, [&] { Modern io(nullptr, port, true); });
}

TEST(EmpAddressTest, Ipv6NeedsNoBrackets) {
  EXPECT_EQ(adapters::endpoint("::1", 80), "[::1]:80");
  EXPECT_EQ(adapters::endpoint("[::1]", 80), "[::1]:80");
  EXPECT_EQ(adapters::endpoint("10.0.0.1", 80), "10.0.0.1:80");
  EXPECT_EQ(adapters::endpoint("", 80), ":80");
}

}  // namespace
}  // namespace leat::detail
