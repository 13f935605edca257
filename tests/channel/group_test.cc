// Groups: what master and workers say to each other, over every transport, as threads and as
// processes.
#include "leat/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "support/group_side.h"
#include "support/pattern.h"

namespace leat::detail {
namespace {

using testing::HasSubstr;

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> message(bytes);
  fill_pattern(message, seed);
  return message;
}

void short_timeout(Options& options) { options.timeout = std::chrono::milliseconds(200); }

std::size_t broadcast(GroupMaster& master, std::string_view text) {
  try {
    return master.broadcast(text);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
  }
  std::size_t reached = 0;
  patiently([&] { reached = master.resume(std::as_bytes(std::span(text))); });
  return reached;
}

GroupMessage receive(GroupMaster& master) {
  GroupMessage arrival;
  patiently([&] { arrival = master.receive(); });
  return arrival;
}

LEAT_INSTANTIATE_GROUP_SUITE(GroupTest);

TEST_P(GroupTest, BroadcastReachesAllAndGatherBringsOneOfEach) {
  const std::vector<std::size_t> sizes{0, 1, 48, 49, 4096, 100'000, 3'000'000};
  const auto seed = [](std::uint64_t round, unsigned worker) { return 1000 * round + worker; };
  run(
      4,
      [&](GroupMaster& master) {
        for (std::uint64_t round = 0; round < sizes.size(); ++round) {
          EXPECT_EQ(master.broadcast(pattern(sizes[round], round)), 4u);
          const auto gathered = master.gather();
          ASSERT_EQ(gathered.size(), 4u);
          for (unsigned worker = 0; worker < 4; ++worker) {
            EXPECT_EQ(gathered[worker].worker, worker);
            EXPECT_EQ(gathered[worker].end, nullptr);
            expect_message(gathered[worker].message, sizes[round], seed(round, worker));
          }
        }
        master.shutdown();
        for (const GroupMessage& last : master.gather()) {
          EXPECT_FALSE(last.message);
          ASSERT_NE(last.end, nullptr);
          EXPECT_TRUE(last.end->in_order) << last.end->reason;
        }
        EXPECT_EQ(master.alive(), 0u);
        EXPECT_FALSE(master.receive()) << "ends are reported once";
        EXPECT_EQ(master.next_end(), nullptr);
        expect_error(ErrorCode::kPeerDied, [&] { (void)master.gather(); });
        const Stats stats = master.stats();
        EXPECT_GE(stats.received_messages, 4 * sizes.size());
        EXPECT_THAT(master.describe(), HasSubstr("4 workers, 0 alive"));
      },
      [&](GroupWorker& worker) {
        for (std::uint64_t round = 0; round < sizes.size(); ++round) {
          expect_message(worker.receive(), sizes[round], round);
          worker.send(pattern(sizes[round], seed(round, worker.rank())));
        }
        EXPECT_FALSE(worker.receive());
      });
}

// --- random traffic against a model

// What the master tells a worker to do, before the pattern of `seed`.
struct Order {
  std::uint64_t seed = 0;
  std::uint32_t bytes = 0;  // that follow
  std::uint32_t answers = 0;
  std::uint32_t answer_bytes = 0;
};

std::uint64_t answer_seed(std::uint64_t seed, unsigned worker, unsigned answer) {
  return (seed << 16) + worker * 64 + answer;
}

// The answers that the master must get, as it ordered them.
class Model {
 public:
  struct Answer {
    std::size_t bytes;
    std::uint64_t seed;
  };

  explicit Model(unsigned workers) : due_(workers) {}

  void ordered(const Order& order, unsigned worker) {
    for (unsigned i = 0; i < order.answers; ++i)
      due_[worker].push_back({order.answer_bytes, answer_seed(order.seed, worker, i)});
  }
  void arrived(const GroupMessage& arrival) {
    ASSERT_LT(arrival.worker, due_.size());
    ASSERT_EQ(arrival.end, nullptr) << arrival.end->reason;
    auto& due = due_[arrival.worker];
    ASSERT_FALSE(due.empty()) << "a message that was not ordered";
    expect_message(arrival.message, due.front().bytes, due.front().seed);
    due.pop_front();
  }
  bool all_have_one() const {
    return std::ranges::none_of(due_, [](const auto& due) { return due.empty(); });
  }
  std::size_t due_bytes() const {
    std::size_t bytes = 0;
    for (const auto& due : due_)
      for (const Answer& answer : due) bytes += answer.bytes + 64;
    return bytes;
  }
  bool empty() const {
    return std::ranges::all_of(due_, [](const auto& due) { return due.empty(); });
  }

 private:
  std::vector<std::deque<Answer>> due_;
};

TEST_P(GroupTest, RandomTrafficIsAsTheModelSays) {
  constexpr unsigned kWorkers = 3;
  // Never more than a worker can leave at the master while that sends: nobody receives then.
  constexpr std::size_t kMostDueBytes = 100'000;
  run(
      kWorkers,
      [&](GroupMaster& master) {
        std::mt19937 engine(kWorkers);
        const auto random = [&] { return static_cast<unsigned>(engine()); };
        Model model(kWorkers);
        std::uint64_t seed = 0;
        const auto next_order = [&] {
          Order order;
          order.seed = ++seed;
          const bool large = random() % 20 == 0;
          order.bytes = random() % (large ? 1'500'000 : 3'000);
          order.answers = random() % 4;
          order.answer_bytes = random() % (random() % 20 == 0 ? 30'000 : 200);
          std::vector<std::byte> message(sizeof order + order.bytes);
          std::memcpy(message.data(), &order, sizeof order);
          fill_pattern(std::span(message).subspan(sizeof order), order.seed);
          return std::pair(order, std::move(message));
        };
        const std::size_t steps = scaled(600);
        for (std::size_t step = 0; step < steps && !testing::Test::HasFatalFailure(); ++step) {
          const unsigned choice = random() % 6;
          if (choice <= 2 && model.due_bytes() < kMostDueBytes) {
            const auto [order, message] = next_order();
            if (choice == 0) {
              EXPECT_EQ(master.broadcast(message), kWorkers);
              for (unsigned worker = 0; worker < kWorkers; ++worker) model.ordered(order, worker);
            } else {
              const unsigned worker = random() % kWorkers;
              master.send(worker, message);
              model.ordered(order, worker);
            }
          } else if (choice == 3 && model.all_have_one()) {
            for (const GroupMessage& arrival : master.gather()) model.arrived(arrival);
          } else if (choice == 4) {
            if (const auto arrival = master.try_receive()) model.arrived(*arrival);
          } else if (!model.empty()) {
            model.arrived(master.receive());
          }
        }
        while (!model.empty() && !testing::Test::HasFatalFailure()) model.arrived(master.receive());
        EXPECT_FALSE(master.try_receive().has_value());
      },
      [](GroupWorker& worker) {
        while (const Message message = worker.receive()) {
          Order order;
          ASSERT_GE(message.size(), sizeof order);
          std::memcpy(&order, message.data(), sizeof order);
          ASSERT_EQ(message.size(), sizeof order + order.bytes);
          expect_pattern(message.bytes().subspan(sizeof order), order.seed);
          for (unsigned i = 0; i < order.answers; ++i)
            worker.send(pattern(order.answer_bytes, answer_seed(order.seed, worker.rank(), i)));
        }
      });
}

TEST_P(GroupTest, WorkersThatHaveSomethingTakeTurns) {
  constexpr unsigned kWorkers = 4;
  constexpr unsigned kFew = 20;
  const Words ready;
  run(
      kWorkers,
      [&](GroupMaster& master) {
        for (unsigned i = 0; i < kWorkers; ++i) EXPECT_EQ(ready.hear(), "sent");
        std::vector<unsigned> counts(kWorkers);
        for (unsigned turn = 0; turn < kFew; ++turn) {
          std::set<unsigned> seen;
          for (unsigned i = 0; i < kWorkers; ++i) {
            const GroupMessage arrival = master.receive();
            seen.insert(arrival.worker);
            expect_message(arrival.message, 100, counts[arrival.worker]++);
          }
          ASSERT_EQ(seen.size(), kWorkers) << "turn " << turn;
        }
        for (unsigned i = 0; i < 3 * kFew; ++i) EXPECT_EQ(master.receive().worker, 2u);
      },
      [&](GroupWorker& worker) {
        const unsigned count = worker.rank() == 2 ? 4 * kFew : kFew;  // the chatty one
        for (unsigned i = 0; i < count; ++i) worker.send(pattern(100, i));
        worker.channel().flush();
        ready.tell("sent");
        EXPECT_FALSE(worker.receive());
      });
}

// A gather that timed out has lost nothing: what was here is given by receive, or by the next.
TEST_P(GroupTest, GatherNamesWhoIsMissingInTimeAndGoesOn) {
  const Words go;
  run(
      3,
      [&](GroupMaster& master) {
        EXPECT_EQ(go.hear(), "sent");
        EXPECT_EQ(go.hear(), "sent");
        for (;;) {
          try {
            (void)master.gather();
            FAIL() << "worker 1 has sent nothing";
          } catch (const Error& error) {
            ASSERT_EQ(error.code(), ErrorCode::kTimeout);
            EXPECT_THAT(error.what(), HasSubstr("worker 1 ("));
          }
          if (master.unheard() == std::vector<unsigned>{1}) break;
        }
        const GroupMessage early = receive(master);
        EXPECT_NE(early.worker, 1u);
        expect_message(early.message, 300, early.worker);
        ASSERT_EQ(broadcast(master, "go"), 3u);
        std::vector<GroupMessage> gathered;
        patiently([&] { gathered = master.gather(); });
        EXPECT_THAT(master.unheard(), testing::IsEmpty());
        for (const GroupMessage& arrival : gathered)
          expect_message(arrival.message, arrival.worker == early.worker ? 400 : 300,
                         arrival.worker);
        patiently([&] { master.shutdown(); });
        unsigned rest = 0;
        while (const GroupMessage arrival = receive(master)) {
          if (arrival.end != nullptr) continue;
          expect_message(arrival.message, 400, arrival.worker);
          ++rest;
        }
        EXPECT_EQ(rest, 2u);
      },
      [&](GroupWorker& worker) {
        if (worker.rank() != 1) {
          worker.send(pattern(300, worker.rank()));
          worker.channel().flush();
          go.tell("sent");
        }
        EXPECT_EQ(worker.receive().text(), "go");
        if (worker.rank() == 1) worker.send(pattern(300, 1));
        worker.send(pattern(400, worker.rank()));
        EXPECT_FALSE(worker.receive());
      },
      {.master = short_timeout});
}

TEST_P(GroupTest, SlowWorkerDelaysNobodyAndGetsTheBroadcastInTheEnd) {
  constexpr std::size_t kBytes = 12'000'000;  // more than any transport takes unread
  const Words words;
  run(
      3,
      [&](GroupMaster& master) {
        const auto message = pattern(kBytes, 7);
        expect_error(ErrorCode::kTimeout, [&] { (void)master.broadcast(message); });
        // On a busy machine the others may not be through at once.
        while (master.unreached() != std::vector<unsigned>{1}) {
          try {
            (void)master.resume(message);
            FAIL() << "worker 1 does not receive";
          } catch (const Error& error) {
            ASSERT_EQ(error.code(), ErrorCode::kTimeout);
            EXPECT_THAT(error.what(), HasSubstr("worker 1 ("));
          }
        }
        for (unsigned i = 0; i < 2; ++i) {
          const GroupMessage arrival = receive(master);
          EXPECT_NE(arrival.worker, 1u);
          EXPECT_TRUE(arrival.message.text() == "got it");
        }
        expect_error(ErrorCode::kInvalidArgument, [&] { (void)master.broadcast("other"); });
        expect_error(ErrorCode::kInvalidArgument,
                     [&] { (void)master.resume(std::vector<std::byte>(8)); });
        expect_error(ErrorCode::kInvalidArgument, [&] { master.send(1, "other"); });
        expect_error(ErrorCode::kInvalidArgument, [&] { master.shutdown(); });
        patiently([&] { master.send(0, "in between"); });
        words.tell("wake up");
        patiently([&] { EXPECT_EQ(master.resume(message), 3u); });
        EXPECT_EQ(master.resume({}), 3u) << "nothing is left to be done";
        EXPECT_THAT(master.unreached(), testing::IsEmpty());
        EXPECT_EQ(broadcast(master, "last"), 3u);
        patiently([&] { master.flush(); });
        EXPECT_EQ(words.hear(), "done");
      },
      [&](GroupWorker& worker) {
        if (worker.rank() == 1) {
          EXPECT_EQ(words.hear(), "wake up");
        }
        expect_message(worker.receive(), kBytes, 7);
        if (worker.rank() != 1) worker.send("got it");
        if (worker.rank() == 0) {
          EXPECT_TRUE(worker.receive().text() == "in between");
        }
        EXPECT_TRUE(worker.receive().text() == "last");
        if (worker.rank() == 1) words.tell("done");
        EXPECT_FALSE(worker.receive());
      },
      {.master = short_timeout});
}

TEST_P(GroupTest, SlowWorkerCanBeDropped) {
  constexpr std::size_t kBytes = 12'000'000;
  const Words words;
  run(
      3,
      [&](GroupMaster& master) {
        const auto message = pattern(kBytes, 7);
        expect_error(ErrorCode::kTimeout, [&] { (void)master.broadcast(message); });
        EXPECT_THAT(master.unreached(), testing::Contains(1u));
        master.drop(1, "it is slow");
        words.tell("dropped");
        EXPECT_EQ(master.alive(), 2u);
        patiently([&] { EXPECT_EQ(master.resume(message), 2u); });
        EXPECT_EQ(broadcast(master, "last"), 2u);
        expect_error(ErrorCode::kPeerDied, [&] { master.send(1, "late"); });
        EXPECT_EQ(master.next_end(), nullptr) << "drop() is not reported to its caller";
        ASSERT_NE(master.end(1), nullptr);
        EXPECT_EQ(master.end(1)->code, ErrorCode::kClosed);
        EXPECT_THAT(master.end(1)->reason, HasSubstr("it is slow"));
        std::vector<GroupMessage> gathered;
        patiently([&] { gathered = master.gather(); });
        for (const GroupMessage& arrival : gathered) {
          EXPECT_EQ(arrival.end != nullptr, arrival.worker == 1);
          EXPECT_TRUE(arrival.worker == 1 || arrival.message.text() == "got it");
        }
      },
      [&](GroupWorker& worker) {
        if (worker.rank() == 1) {
          EXPECT_EQ(words.hear(), "dropped");
          expect_error(ErrorCode::kPeerDied, [&] { (void)worker.receive(); });
          return;
        }
        expect_message(worker.receive(), kBytes, 7);
        EXPECT_TRUE(worker.receive().text() == "last");
        worker.send("got it");
        EXPECT_FALSE(worker.receive());
      },
      {.master = short_timeout});
}

// A worker that has shut down its side still gets what is broadcast; its end comes after its
// messages.
TEST_P(GroupTest, EndsInOrderComeAfterTheMessages) {
  run(
      2,
      [](GroupMaster& master) {
        std::vector<unsigned> counts(2);
        unsigned ends = 0;
        while (const GroupMessage arrival = master.receive()) {
          if (arrival.message) {
            expect_message(arrival.message, 1000, counts[arrival.worker]++);
            continue;
          }
          ASSERT_NE(arrival.end, nullptr);
          EXPECT_TRUE(arrival.end->in_order);
          EXPECT_EQ(arrival.end->worker, arrival.worker);
          EXPECT_EQ(arrival.end, master.end(arrival.worker));
          EXPECT_EQ(counts[arrival.worker], 10u);
          ++ends;
        }
        EXPECT_EQ(ends, 2u);
        EXPECT_EQ(master.alive(), 0u);
        EXPECT_EQ(master.broadcast("still there?"), 2u);
        master.shutdown();
        expect_error(ErrorCode::kClosed, [&] { (void)master.broadcast("no more"); });
        expect_error(ErrorCode::kClosed, [&] { master.send(0, "no more"); });
      },
      [](GroupWorker& worker) {
        for (unsigned i = 0; i < 10; ++i) worker.send(pattern(1000, i));
        worker.channel().shutdown();
        EXPECT_EQ(worker.receive().text(), "still there?");
        EXPECT_FALSE(worker.receive());
      });
}

TEST_P(GroupTest, OneThreadSendsWhileAnotherReceives) {
  const std::size_t rounds = scaled(500);
  const Words words;
  run(
      3,
      [&](GroupMaster& master) {
        std::thread sender([&] {
          for (std::size_t i = 0; i < rounds; ++i)
            EXPECT_EQ(master.broadcast(pattern(i % 50 == 0 ? 1'500'000 : 1 + i, i)), 3u);
          master.shutdown();
        });
        std::vector<std::size_t> counts(3);
        while (const GroupMessage arrival = master.receive()) {
          if (arrival.end != nullptr) {
            EXPECT_TRUE(arrival.end->in_order) << arrival.end->reason;
            continue;
          }
          const std::size_t i = counts[arrival.worker]++;
          expect_message(arrival.message, i % 50 == 0 ? 1'500'000 : 1 + i, i);
        }
        sender.join();
        words.tell("all is here", 3);
        EXPECT_THAT(counts, testing::Each(rounds));
      },
      [&](GroupWorker& worker) {
        while (const Message message = worker.receive()) worker.send(message.bytes());
        worker.channel().shutdown();
        // A process that ended now would take with it what is in its socket's buffer.
        EXPECT_EQ(words.hear(), "all is here");
      });
}

class GroupThreads : public GroupTest {};  // of the master

INSTANTIATE_TEST_SUITE_P(Groups, GroupThreads,
                         testing::Combine(testing::ValuesIn(group_kinds()),
                                          testing::Values(PeerMode::kThreads),
                                          testing::Values(GroupSpin::kDefault, GroupSpin::kZero)),
                         group_test_name_without_mode);

TEST_P(GroupThreads, CloseWakesWhoeverWaits) {
  const std::vector<std::function<void(GroupMaster&)>> calls{
      [](GroupMaster& master) { (void)master.receive(); },
      [](GroupMaster& master) { (void)master.gather(); },
      [](GroupMaster& master) { (void)master.broadcast(pattern(12'000'000, 1)); }};
  for (const auto& call : calls) {
    const Words words;
    run(
        2,
        [&](GroupMaster& master) {
          std::thread closer([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            master.close();
          });
          expect_error(ErrorCode::kClosed, [&] { call(master); });
          closer.join();
          expect_error(ErrorCode::kClosed, [&] { (void)master.try_receive(); });
          expect_error(ErrorCode::kClosed, [&] { (void)master.broadcast("x"); });
          expect_error(ErrorCode::kClosed, [&] { master.drop(0, "x"); });
          words.tell("closed", 2);
        },
        [&](GroupWorker&) { EXPECT_EQ(words.hear(), "closed"); });
  }
}

TEST_P(GroupTest, WrongCallsAreNamed) {
  run(
      2,
      [](GroupMaster& master) {
        expect_error(ErrorCode::kInvalidArgument, [&] { master.send(2, "x"); });
        expect_error(ErrorCode::kInvalidArgument, [&] { (void)master.end(2); });
        expect_error(ErrorCode::kInvalidArgument, [&] { (void)master.channel(7); });
        EXPECT_EQ(master.max_message_bytes(), 1'000'000u);
        const std::vector<std::byte> large(1'000'001);
        expect_error(ErrorCode::kTooLarge, [&] { (void)master.broadcast(large); });
        expect_error(ErrorCode::kTooLarge, [&] { master.send(1, large); });
        EXPECT_EQ(master.broadcast("fine"), 2u);
        master.shutdown();
        EXPECT_TRUE(master.receive().end->in_order);
      },
      [](GroupWorker& worker) {
        EXPECT_EQ(worker.receive().text(), "fine");
        EXPECT_FALSE(worker.receive());
      },
      {.master = [](Options& options) { options.max_message_bytes = 2'000'000; },
       .worker = [](Options& options) { options.max_message_bytes = 1'000'000; }});
}

}  // namespace
}  // namespace leat::detail
