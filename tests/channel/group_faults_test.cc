// Groups whose workers, or whose master, die; groups in forked children.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "leat/group.h"
#include "support/fork_at_rest.h"
#include "support/group_side.h"
#include "support/pattern.h"

namespace leat::detail {
namespace {

using testing::HasSubstr;

// Workers are killed, so only as processes.
class GroupFaultsTest : public GroupTest {};

INSTANTIATE_TEST_SUITE_P(Groups, GroupFaultsTest,
                         testing::Combine(testing::ValuesIn(group_kinds()),
                                          testing::Values(PeerMode::kProcesses),
                                          testing::Values(GroupSpin::kDefault, GroupSpin::kZero)),
                         group_test_name);

void expect_died(const WorkerEnd* end, unsigned worker) {
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->worker, worker);
  EXPECT_FALSE(end->in_order);
  EXPECT_EQ(end->code, ErrorCode::kPeerDied) << end->reason;
  EXPECT_GT(end->reason.size(), 10u);
}

// Echoes until it is told what to die of; after the master's end it dies of nothing.
void echo_until(GroupWorker& worker, unsigned dying, std::size_t rounds) {
  for (std::size_t i = 0; worker.rank() != dying || i < rounds; ++i) {
    const Message message = worker.receive();
    if (!message) return;
    worker.send(message.bytes());
  }
  worker.channel().flush();
  die();
}

TEST_P(GroupFaultsTest, KilledInGather) {
  run(
      3,
      [](GroupMaster& master) {
        for (unsigned round = 0; round < 20; ++round) {
          const std::size_t reached = master.broadcast("work");
          EXPECT_TRUE(reached == 2u || (reached == 3u && round <= 10)) << reached;
          for (const GroupMessage& arrival : master.gather()) {
            if (arrival.worker == 1 && round >= 10) {
              EXPECT_FALSE(arrival.message);
              expect_died(arrival.end, 1);
            } else {
              EXPECT_EQ(arrival.message.text(), "work");
              EXPECT_EQ(arrival.end, nullptr);
            }
          }
        }
        EXPECT_EQ(master.alive(), 2u);
        EXPECT_EQ(master.next_end(), nullptr) << "gather has said it";
        EXPECT_FALSE(master.try_receive().has_value());
        EXPECT_THAT(master.describe(), HasSubstr("2 alive"));
      },
      [](GroupWorker& worker) { echo_until(worker, 1, 10); }, {.killed = 2});
}

TEST_P(GroupFaultsTest, KilledInReceive) {
  run(
      3,
      [](GroupMaster& master) {
        EXPECT_EQ(master.broadcast("work"), 3u);
        unsigned messages = 0;
        unsigned deaths = 0;
        while (deaths == 0) {
          const GroupMessage arrival = master.receive();
          ASSERT_TRUE(arrival);
          if (arrival.message) {
            EXPECT_EQ(arrival.message.text(), arrival.worker == 2 ? "my last words" : "work");
            ++messages;
            continue;
          }
          expect_died(arrival.end, 2);
          ++deaths;
        }
        while (messages < 4) {
          const GroupMessage arrival = master.receive();
          EXPECT_TRUE(arrival.message) << (arrival.end ? arrival.end->reason : "no end");
          ++messages;
        }
        // And the others go on.
        EXPECT_EQ(master.broadcast("more"), 2u);
        EXPECT_EQ(master.receive().message.text(), "more");
        EXPECT_EQ(master.receive().message.text(), "more");
        EXPECT_FALSE(master.try_receive().has_value());
        expect_error(ErrorCode::kPeerDied, [&] { master.send(2, "x"); });
      },
      [](GroupWorker& worker) {
        if (worker.rank() != 2) return echo_until(worker, kMaxWorkers, 0);
        EXPECT_EQ(worker.receive().text(), "work");
        worker.send("my last words");
        worker.send("my last words");
        worker.channel().flush();
        die();
      },
      {.killed = 3});
}

// In the middle of a large message, of which it receives nothing.
TEST_P(GroupFaultsTest, KilledInBroadcast) {
  constexpr std::size_t kBytes = 12'000'000;
  const Words words;
  run(
      3,
      [&](GroupMaster& master) {
        std::vector<std::byte> message(kBytes);
        fill_pattern(message, 3);
        words.tell("wait, then die");
        EXPECT_EQ(master.broadcast(message), 2u);
        EXPECT_EQ(master.broadcast("more"), 2u);
        expect_died(master.next_end(), 0);
        EXPECT_EQ(master.next_end(), nullptr);
        for (const GroupMessage& arrival : master.gather()) {
          if (arrival.worker == 0) {
            expect_died(arrival.end, 0);
          } else {
            EXPECT_EQ(arrival.message.text(), "got both");
          }
        }
      },
      [&](GroupWorker& worker) {
        if (worker.rank() == 0) {
          EXPECT_EQ(words.hear(), "wait, then die");
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          die();
        }
        expect_message(worker.receive(), kBytes, 3);
        EXPECT_EQ(worker.receive().text(), "more");
        worker.send("got both");
        EXPECT_FALSE(worker.receive());
      },
      {.killed = 1});
}

// A master that only sends, small messages, notices at the latest when a worker's room is full.
TEST_P(GroupFaultsTest, MasterThatNeverReceivesHearsOfADeath) {
  run(
      2,
      [](GroupMaster& master) {
        const Deadline deadline = notice_deadline();
        const WorkerEnd* end = nullptr;
        while (end == nullptr && !passed(deadline)) {
          EXPECT_GE(master.broadcast("tick"), 1u);
          end = master.next_end();
        }
        expect_died(end, 1);
        EXPECT_EQ(master.broadcast("tick"), 1u);
        EXPECT_EQ(master.next_end(), nullptr);
      },
      [](GroupWorker& worker) {
        if (worker.rank() == 1) die();
        while (worker.receive()) {
        }
      },
      {.killed = 2});
}

TEST_P(GroupFaultsTest, PollingMasterHearsOfADeath) {
  run(
      2,
      [](GroupMaster& master) {
        const Deadline deadline = notice_deadline();
        std::optional<GroupMessage> arrival;
        while (!arrival && !passed(deadline)) arrival = master.try_receive();
        ASSERT_TRUE(arrival.has_value());
        expect_died(arrival->end, 1);
      },
      [](GroupWorker& worker) {
        if (worker.rank() == 1) die();
        EXPECT_FALSE(worker.receive());
      },
      {.killed = 2});
}

TEST_P(GroupFaultsTest, AllWorkersGone) {
  run(
      1,
      [](GroupMaster& master) {
        expect_died(master.receive().end, 0);
        EXPECT_FALSE(master.receive());
        EXPECT_EQ(master.alive(), 0u);
        expect_error(ErrorCode::kPeerDied, [&] { (void)master.broadcast("x"); });
        expect_error(ErrorCode::kPeerDied, [&] { (void)master.gather(); });
        expect_error(ErrorCode::kPeerDied, [&] { master.send(0, "x"); });
        master.flush();
      },
      [](GroupWorker&) { die(); }, {.killed = 1});
}

TEST_P(GroupFaultsTest, MasterDeathIsSeenByAllWorkers) {
  run(
      3,
      [](GroupMaster& master) {
        std::set<unsigned> heard;
        while (heard.size() < 3) heard.insert(master.receive().worker);
        die();
      },
      [](GroupWorker& worker) {
        worker.send("here");
        if (worker.rank() == 0) {
          expect_error(ErrorCode::kPeerDied, [&] { (void)worker.receive(); });
        } else {
          expect_error(ErrorCode::kPeerDied, [&] {
            for (;;) worker.send(std::string(10'000, 'x'));
          });
        }
      },
      {.killed = 0});
}

TEST_P(GroupFaultsTest, ChildOfTheMasterCanNeitherUseNorHarmIt) {
  run(
      2,
      [](GroupMaster& master) {
        const pid_t child = fork_at_rest();
        if (child == 0) {
          bool fine = false;
          try {
            (void)master.broadcast("from the child");
          } catch (const Error& error) {
            fine = error.code() == ErrorCode::kClosed &&
                   std::string(error.what()).find("fork") != std::string::npos;
          }
          master.close();
          { const GroupMaster gone = std::move(master); }
          std::_Exit(fine ? 0 : 1);
        }
        int status = -1;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
        EXPECT_EQ(master.broadcast("from the parent"), 2u);
        for (const GroupMessage& arrival : master.gather())
          EXPECT_EQ(arrival.message.text(), "from the parent");
      },
      [](GroupWorker& worker) { echo_until(worker, kMaxWorkers, 0); });
}

}  // namespace
}  // namespace leat::detail
