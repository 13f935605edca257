// How groups come together: places, strangers, duplicates, hostile hellos; the division of memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "channel/group/hello.h"
#include "leat/group.h"
#include "support/group_side.h"

namespace leat::detail {
namespace {

using testing::HasSubstr;

// Of a master with the silent: long enough for those that speak, on a busy machine.
constexpr std::chrono::milliseconds kPatience{5'000};

Options shm_options() { return channel_options({"ring", "shm"}); }

GroupWorkerOptions wanting(std::optional<unsigned> rank, std::optional<unsigned> size = {}) {
  GroupWorkerOptions options;
  options.rank = rank;
  options.size = size;
  options.options = shm_options();
  return options;
}

// A master in a thread, until its workers are there.
class Meeting {
 public:
  explicit Meeting(unsigned workers, Options options = shm_options())
      : listener_("127.0.0.1:0", options), master_(std::async(std::launch::async, [this, workers] {
          return GroupMaster::accept(listener_, workers);
        })) {}

  std::string address() const { return listener_.address(); }
  GroupMaster master() { return master_.get(); }
  bool is_complete() const {
    return master_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  std::future<GroupWorker> worker(const GroupWorkerOptions& options) const {
    return std::async(std::launch::async, [address = address(), options] {
      return GroupWorker::connect(address, options);
    });
  }
  void expect_turned_away(const GroupWorkerOptions& options, const std::string& text) const {
    try {
      (void)GroupWorker::connect(address(), options);
      ADD_FAILURE() << "was admitted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  }

 private:
  Listener listener_;
  std::future<GroupMaster> master_;
};

TEST(GroupMeetingTest, WantedRanksAreGivenAndTheOthersFillUp) {
  Meeting meeting(4);
  auto third = meeting.worker(wanting(2, 4));
  auto any = meeting.worker(wanting({}));
  auto another = meeting.worker(wanting({}));
  auto first = meeting.worker(wanting(0));
  GroupMaster master = meeting.master();
  EXPECT_EQ(third.get().rank(), 2u);
  EXPECT_EQ(first.get().rank(), 0u);
  const unsigned rank = any.get().rank();
  EXPECT_TRUE(rank == 1 || rank == 3) << rank;
  EXPECT_EQ(another.get().rank(), 4 - rank);
  EXPECT_EQ(master.size(), 4u);
}

TEST(GroupMeetingTest, WhoDoesNotFitIsToldSoAndTheOthersGoOn) {
  Meeting meeting(2);
  auto first = meeting.worker(wanting(0));
  // The later one of the two is the duplicate.
  meeting.expect_turned_away(wanting(2), "wants to be worker 2 of 2");
  meeting.expect_turned_away(wanting({}, 3), "a group of 3 workers, this one has 2");
  auto second_first = meeting.worker(wanting(0));
  for (;;) {
    if (first.wait_for(std::chrono::milliseconds(1)) == std::future_status::ready) {
      std::swap(first, second_first);
      break;
    }
    if (second_first.wait_for(std::chrono::milliseconds(1)) == std::future_status::ready) break;
  }
  try {
    (void)second_first.get();
    ADD_FAILURE() << "two workers 0";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("there is a worker 0 already"));
  }
  EXPECT_FALSE(meeting.is_complete());
  auto last = meeting.worker(wanting({}));
  GroupMaster master = meeting.master();
  EXPECT_EQ(first.get().rank(), 0u);
  EXPECT_EQ(last.get().rank(), 1u);
}

// A channel that says `words` to a group's master gets an answer of that code, or the end.
void expect_refused(const Meeting& meeting, std::span<const std::byte> words, ErrorCode code) {
  Channel stranger = Channel::connect(meeting.address(), shm_options());
  stranger.send(words);
  const Message answer = stranger.receive();
  ASSERT_TRUE(answer);
  const GroupAnswer refusal = decode_group_answer(answer.bytes());
  EXPECT_TRUE(refusal.refused);
  EXPECT_EQ(refusal.code, code) << refusal.text;
  EXPECT_FALSE(refusal.text.empty());
}

TEST(GroupMeetingTest, StrangersAreRefusedAndHoldUpNobody) {
  Options options = shm_options();
  options.handshake_timeout = kPatience;
  Meeting meeting(3, options);
  auto first = meeting.worker(wanting(1));
  expect_refused(meeting, {}, ErrorCode::kProtocol);
  expect_refused(meeting, std::as_bytes(std::span("GET / HTTP/1.1", 14)), ErrorCode::kProtocol);
  const std::vector<std::byte> large(1'000'000);
  expect_refused(meeting, large, ErrorCode::kProtocol);
  std::vector<std::byte> newer = encode(GroupHello{});
  newer[8] = std::byte{9};
  expect_refused(meeting, newer, ErrorCode::kVersion);
  {
    Channel silent = Channel::connect(meeting.address(), shm_options());
    const Message answer = silent.receive();
    EXPECT_EQ(decode_group_answer(answer.bytes()).code, ErrorCode::kTimeout);
    EXPECT_FALSE(silent.receive());
  }
  // One that talks before the group is complete loses its place: two are missing until it does.
  {
    Channel hasty = Channel::connect(meeting.address(), shm_options());
    hasty.send(encode(GroupHello{0, 3}));
    hasty.send("too early");
    const Message answer = hasty.receive();
    EXPECT_EQ(decode_group_answer(answer.bytes()).code, ErrorCode::kProtocol);
  }
  EXPECT_FALSE(meeting.is_complete());
  auto second = meeting.worker(wanting(0));
  auto last = meeting.worker(wanting({}));
  GroupMaster master = meeting.master();
  EXPECT_EQ(first.get().rank(), 1u);
  EXPECT_EQ(second.get().rank(), 0u);
  EXPECT_EQ(last.get().rank(), 2u);
}

TEST(GroupMeetingTest, MoreSilentStrangersThanAreHeardAtATime) {
  Options options = shm_options();
  options.handshake_timeout = kPatience;
  Meeting meeting(1, options);
  std::vector<Channel> strangers;
  for (unsigned i = 0; i < 20; ++i)
    strangers.push_back(Channel::connect(meeting.address(), shm_options()));
  auto worker = meeting.worker(wanting({}));
  GroupMaster master = meeting.master();
  EXPECT_EQ(worker.get().rank(), 0u);
}

TEST(GroupMeetingTest, WorkerThatLeavesBeforeAllAreThereIsReplaced) {
  Meeting meeting(2);
  for (unsigned i = 0; i < 3; ++i) {
    Channel leaving = Channel::connect(meeting.address(), shm_options());
    leaving.send(encode(GroupHello{0, 0}));
    leaving.flush();
  }
  // Its place may still be taken at first.
  std::optional<GroupWorker> worker;
  auto other = meeting.worker(wanting(1));
  const Deadline deadline = notice_deadline();
  while (!worker && !passed(deadline)) {
    try {
      worker = GroupWorker::connect(meeting.address(), wanting(0));
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("already"));
    }
  }
  ASSERT_TRUE(worker.has_value());
  GroupMaster master = meeting.master();
  // One that left unnoticed is seen afterwards, as any death.
  EXPECT_EQ(master.broadcast("hello"), 2u);
  EXPECT_EQ(worker->receive().text(), "hello");
}

TEST(GroupMeetingTest, MasterWaitsForItsTimeoutAndNamesWhoIsMissing) {
  Options options = shm_options();
  options.connect_timeout = std::chrono::seconds(3);
  Meeting meeting(3, options);
  auto worker = meeting.worker(wanting(1));
  try {
    (void)meeting.master();
    ADD_FAILURE() << "complete";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_THAT(error.what(), HasSubstr("only 1 of 3 workers"));
    EXPECT_THAT(error.what(), HasSubstr("ranks 0, 2"));
  }
  expect_error(ErrorCode::kPeerDied, [&] { (void)worker.get(); });
}

TEST(GroupMeetingTest, WorkerWaitsForItsConnectTimeout) {
  Listener listener("127.0.0.1:0", shm_options());
  std::optional<Channel> accepted;
  std::thread no_master([&] { accepted = listener.accept(); });
  GroupWorkerOptions options = wanting({});
  options.options.connect_timeout = std::chrono::seconds(3);
  try {
    (void)GroupWorker::connect(listener.address(), options);
    ADD_FAILURE() << "there is no group";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_THAT(error.what(), HasSubstr("not complete within 3000 ms"));
  }
  no_master.join();
}

TEST(GroupMeetingTest, WorkerBelievesNoOddMaster) {
  GroupAnswer other_rank;
  other_rank.rank = 1;
  other_rank.size = 2;
  GroupAnswer other_size;
  other_size.rank = 0;
  other_size.size = 3;
  std::vector<std::byte> damaged = encode(other_rank);
  damaged.back() = std::byte{1};
  for (const auto& answer :
       {encode(other_rank), encode(other_size), damaged, std::vector<std::byte>(256)}) {
    Listener listener("127.0.0.1:0", shm_options());
    std::thread odd([&] {
      Channel channel = listener.accept();
      (void)channel.receive();
      channel.send(answer);
      EXPECT_FALSE(channel.receive());
    });
    expect_error(ErrorCode::kProtocol,
                 [&] { (void)GroupWorker::connect(listener.address(), wanting(0, 2)); });
    odd.join();
  }
}

TEST(GroupMeetingTest, ManyGroupsInOneProcess) {
  Listener listener("127.0.0.1:0", shm_options());
  std::vector<GroupMaster> masters;
  std::vector<GroupWorker> workers;
  for (unsigned group = 0; group < 3; ++group) {
    Meeting elsewhere(1);
    auto apart = elsewhere.worker(wanting({}));
    auto first = std::async(std::launch::async, [&] {
      return GroupWorker::connect(listener.address(), wanting(0, 2));
    });
    auto second = std::async(std::launch::async, [&] {
      return GroupWorker::connect(listener.address(), wanting(1, 2));
    });
    masters.push_back(GroupMaster::accept(listener, 2));
    workers.push_back(first.get());
    workers.push_back(second.get());
    masters.push_back(elsewhere.master());
    workers.push_back(apart.get());
  }
  for (std::size_t i = 0; i < masters.size(); ++i)
    (void)masters[i].broadcast("group " + std::to_string(i));
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const std::size_t group = i / 3 * 2 + (i % 3 == 2 ? 1 : 0);
    EXPECT_EQ(workers[i].receive().text(), "group " + std::to_string(group));
  }
}

TEST(GroupMeetingTest, WrongSizesAreNamed) {
  Listener listener("127.0.0.1:0", shm_options());
  for (const unsigned workers : {0U, kMaxWorkers + 1})
    expect_error(ErrorCode::kInvalidArgument,
                 [&] { (void)GroupMaster::accept(listener, workers); });
  expect_error(ErrorCode::kInvalidArgument,
               [&] { (void)GroupWorker::connect(listener.address(), wanting(4, 4)); });
  expect_error(ErrorCode::kInvalidArgument,
               [&] { (void)GroupWorker::connect(listener.address(), wanting({}, 0)); });
  expect_error(ErrorCode::kInvalidArgument,
               [&] { (void)GroupWorker::connect(listener.address(), wanting(kMaxWorkers)); });
}

// --- what is said

TEST(GroupHelloTest, EveryByteIsChecked) {
  const auto hello = encode(GroupHello{3, 5});
  ASSERT_EQ(hello.size(), kGroupHelloBytes);
  EXPECT_EQ(decode_group_hello(hello).rank, 3u);
  EXPECT_EQ(decode_group_hello(hello).size, 5u);
  for (std::size_t i = 0; i < hello.size(); ++i) {
    auto damaged = hello;
    damaged[i] ^= std::byte{0x80};  // of the numbers' low bytes: other numbers, as good as these
    if (i == 12 || i == 16) continue;
    expect_error_of({ErrorCode::kProtocol, ErrorCode::kVersion},
                    [&] { (void)decode_group_hello(damaged); });
  }
  for (std::size_t size = 0; size < hello.size(); ++size)
    expect_error(ErrorCode::kProtocol,
                 [&] { (void)decode_group_hello(std::span(hello).first(size)); });
}

TEST(GroupHelloTest, AnswersSayWhatTheyCarry) {
  GroupAnswer refusal;
  refusal.refused = true;
  refusal.code = ErrorCode::kVersion;
  refusal.text = std::string(300, 'x') + "\n";
  const GroupAnswer back = decode_group_answer(encode(refusal));
  EXPECT_TRUE(back.refused);
  EXPECT_EQ(back.code, ErrorCode::kVersion);
  EXPECT_EQ(back.text, std::string(232, 'x'));
  GroupAnswer welcome;
  welcome.rank = 9;
  welcome.size = 10;
  EXPECT_EQ(decode_group_answer(encode(welcome)).rank, 9u);
  EXPECT_EQ(decode_group_answer(encode(welcome)).size, 10u);
  welcome.rank = 10;
  expect_error(ErrorCode::kProtocol, [&] { (void)decode_group_answer(encode(welcome)); });
}

// --- memory

TEST(GroupMemoryTest, SlotsFitIntoTheirShare) {
  for (const char* device : {"shm", "ib"}) {
    for (const std::size_t bytes : {std::size_t{8} << 20, std::size_t{64} << 20}) {
      for (const unsigned workers : {1U, 4U, 32U}) {
        Options options;
        options.device = device;
        const Options divided = with_slot_memory(bytes, workers, options);
        ASSERT_TRUE(divided.slot_bytes && divided.slot_count);
        EXPECT_LE(*divided.slot_bytes, 4096u);
        EXPECT_LE(*divided.slot_count, 256u);
        EXPECT_GE(*divided.slot_bytes, 64u);
        EXPECT_EQ(divided.device, device);
      }
    }
  }
  const Options all = with_slot_memory(std::size_t{1} << 40, 1024);
  EXPECT_EQ(*all.slot_bytes, 4096u);
  EXPECT_EQ(*all.slot_count, 256u);
}

TEST(GroupMemoryTest, OnlyMemoryThatIsSharedIsCountedOnce) {
  const auto slots = [](const char* device) {
    Options options;
    options.device = device;
    return *with_slot_memory(std::size_t{8} << 20, 8, options).slot_count;
  };
  EXPECT_EQ(slots("shm"), slots("^ib,tcp"));
  EXPECT_GT(slots("shm"), slots("auto"));
  EXPECT_EQ(slots("auto"), slots("ib"));
  EXPECT_EQ(slots("auto"), slots("shm,tcp"));
}

TEST(GroupMemoryTest, TooLittleIsAnErrorThatSaysHowMuchIsNeeded) {
  try {
    (void)with_slot_memory(100'000, 8);
    ADD_FAILURE() << "8 connections in 100 kB";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    const std::string text = error.what();
    const std::string before = "at least ";
    ASSERT_NE(text.find(before), std::string::npos) << text;
    const std::size_t least = std::stoul(text.substr(text.find(before) + before.size()));
    EXPECT_GT(least, 100'000u);
    EXPECT_NO_THROW((void)with_slot_memory(least, 8));
  }
  expect_error(ErrorCode::kInvalidArgument, [] { (void)with_slot_memory(1 << 20, 0); });
}

}  // namespace
}  // namespace leat::detail
