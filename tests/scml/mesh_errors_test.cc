// Mesh: calls that contradict the arrays, deaths, ends, timeouts.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/channel_side.h"
#include "support/errors.h"
#include "support/mesh_side.h"

namespace leat::scml {
namespace {

using leat::detail::expect_error;
using leat::detail::expect_text;
using leat::detail::PeerMode;
using leat::detail::run_parties;
using leat::detail::scaled;

class MeshErrors : public MeshTest {};
LEAT_INSTANTIATE_MESH_SUITE(MeshErrors);

TEST_P(MeshErrors, CallsThatContradictTheArraysDoNothing) {
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
    invalid([&] { mesh.open(kContextLimit, array, flows); });
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

// They would cost memory and count for nothing.
TEST_P(MeshErrors, EarlyMessagesWithoutBytesAreRefused) {
  if (!kind().streams()) return;  // they have bytes, or are no write
  run(2, [&](Mesh& mesh) {
    if (mesh.self() == 0) {
      struct {
        std::uint64_t index = 0;
        std::uint32_t epoch = 1, context = 16;
      } header;
      mesh.channel(1).send(std::as_bytes(std::span(&header, 1)));
      mesh.channel(1).send(std::span<const std::byte>());
      expect_error(ErrorCode::kPeerDied, [&] {
        mesh.barrier();  // which the peer may have reached before it looked
        mesh.barrier();
      });
    } else {
      expect_error(ErrorCode::kProtocol, [&] { mesh.barrier(); });
    }
  });
}

TEST_P(MeshErrors, AMessageIdSeenTwice) {
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
TEST_P(MeshErrors, ADeathIsNamedByAll) {
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

TEST_P(MeshErrors, AnEndInOrderIsNoDeath) {
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
    const auto late = leat::detail::notice_deadline();
    try {
      mesh.barrier();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kPeerDied);
      expect_text(error, " ended");
      EXPECT_FALSE(leat::detail::passed(late)) << "it waited for its timeout";
    }
  });
}

TEST_P(MeshErrors, Timeout) {
  const auto addresses = free_addresses(2, kind().device);
  const leat::MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 1};
  run_parties(mode(), 2, [&](unsigned self) {
    MeshOptions mine = options(addresses, self);
    if (self == 0) mine.options.timeout = std::chrono::milliseconds(30);
    Mesh mesh(mine);
    const auto open = [&] {
      mesh.open(1, array, std::vector<Flow>{{1, 0}});
      mesh.select(1);
    };
    if (self == 0) {
      open();
      expect_error(ErrorCode::kTimeout, [&] { (void)mesh.receive(1, 0, 1); });
    } else {
      // The other may have given up already.
      expect_error(ErrorCode::kPeerDied, [&] {
        open();
        mesh.barrier();
      });
    }
  });
}

}  // namespace
}  // namespace leat::scml
