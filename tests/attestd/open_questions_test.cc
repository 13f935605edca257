// Questions that are begun and finished by calls that do not block: their slots, and daemons that
// stop, die or lie.
#include "attest/open_questions.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "attestd/daemon.h"
#include "attestd/session.h"
#include "base/epoll.h"
#include "base/memfd.h"
#include "support/wire_transport.h"
#include "transport/attested/attested.h"

namespace leat::attestd {
namespace {

using leat::detail::check;
using leat::detail::hang_deadline;
using leat::detail::passed;
using leat::detail::scaled;
using trusted::Question;
using trusted::Verdict;
using trusted::detail::OpenQuestions;

// A question of an empty payload, and its asker.
struct Asked {
  explicit Asked(trusted::IsolatedKernel& kernel, std::uint32_t session = 1)
      : open(kernel, -1),
        question{.asks = Question::Asks::kAttest, .statement = {.session = session}, .bytes = {}} {}

  bool begin() { return open.begin({&question, 1}) == 1; }
  // Tries until it is answered.
  Verdict finish() {
    for (const auto deadline = hang_deadline(); !open.try_finish(); std::this_thread::yield()) {
      EXPECT_FALSE(passed(deadline)) << "no answer";
      if (passed(deadline)) break;
    }
    return question.verdict;
  }

  OpenQuestions open;
  Question question;
};

std::deque<std::unique_ptr<Asked>> begin_all_that_may(trusted::IsolatedKernel& kernel) {
  std::deque<std::unique_ptr<Asked>> begun;
  for (;;) {
    auto one = std::make_unique<Asked>(kernel);
    if (!one->begin()) return begun;
    begun.push_back(std::move(one));
  }
}

std::size_t open_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  std::size_t count = 0;
  while (readdir(folder.get()) != nullptr) ++count;
  return count;
}

class OpenQuestionsTest : public testing::Test {
 protected:
  OpenQuestionsTest() : slots_(RawClient(daemon_.path()).welcome.value().shape.slots) {}
  trusted::IsolatedKernel& kernel() { return *session_.isolated.isolated(); }

  Daemon daemon_;
  const std::size_t slots_;
  Session session_{daemon_};
};

TEST_F(OpenQuestionsTest, as_many_are_under_way_as_there_are_slots_and_each_is_answered_once) {
  daemon_.stop();
  auto begun = begin_all_that_may(kernel());
  ASSERT_EQ(begun.size(), slots_);
  for (const auto& one : begun) EXPECT_FALSE(one->open.try_finish());
  Asked too_many(kernel());
  EXPECT_FALSE(too_many.begin());
  EXPECT_FALSE(too_many.open.announces());
  daemon_.go_on();
  std::set<std::uint64_t> counters;
  for (const auto& one : begun) {
    ASSERT_EQ(one->finish(), Verdict::kOk);
    std::uint64_t counter = 0;
    std::memcpy(&counter, one->question.proof.header.data() + 24, sizeof counter);
    EXPECT_TRUE(counters.insert(counter).second);
  }
  EXPECT_EQ(*counters.rbegin(), slots_ - 1);
  EXPECT_TRUE(too_many.begin());
  EXPECT_EQ(too_many.finish(), Verdict::kOk);
}

// A sleeper arms, looks once more, and may begin a question by that look: its answer must wake too.
TEST_F(OpenQuestionsTest, the_next_request_after_arm_wakes_and_others_are_not_announced) {
  Asked open(kernel()), other(kernel());
  open.open.arm(other.open);
  daemon_.stop();
  ASSERT_TRUE(open.begin());
  EXPECT_FALSE(open.open.try_finish());
  EXPECT_TRUE(open.open.announces());
  pollfd event{open.open.event_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&event, 1, 0), 0);
  daemon_.go_on();
  const std::chrono::milliseconds limit = leat::detail::hang_limit();
  EXPECT_EQ(poll(&event, 1, static_cast<int>(limit.count())), 1);
  EXPECT_EQ(open.finish(), Verdict::kOk);
  EXPECT_TRUE(open.open.announces());
  daemon_.stop();
  ASSERT_TRUE(open.begin());
  EXPECT_FALSE(open.open.announces());
  open.open.arm(other.open);
  EXPECT_TRUE(open.open.announces());
  daemon_.go_on();
  EXPECT_EQ(poll(&event, 1, static_cast<int>(limit.count())), 1);
  EXPECT_EQ(open.finish(), Verdict::kOk);
}

// The owner of an answer that nobody fetches holds up nobody else, however much they ask.
TEST_F(OpenQuestionsTest, an_answer_that_is_not_fetched_holds_up_no_other_asker) {
  Asked idle(kernel());
  ASSERT_TRUE(idle.begin());
  for (std::size_t i = 0; i < 10 * slots_; ++i) {
    Asked busy(kernel());
    ASSERT_TRUE(busy.begin());
    ASSERT_EQ(busy.finish(), Verdict::kOk);
    trusted::Proof proof;
    ASSERT_EQ(kernel().attest({.session = 1}, {}, proof), Verdict::kOk);
  }
  EXPECT_EQ(idle.finish(), Verdict::kOk);
}

TEST_F(OpenQuestionsTest,
       a_dropped_slot_is_used_again_once_the_daemon_has_answered_and_not_before) {
  daemon_.stop();
  EXPECT_EQ(begin_all_that_may(kernel()).size(), slots_);
  EXPECT_TRUE(begin_all_that_may(kernel()).empty());
  daemon_.go_on();
  std::deque<std::unique_ptr<Asked>> again;
  for (const auto deadline = hang_deadline(); again.size() < slots_;) {
    ASSERT_FALSE(passed(deadline)) << "slots are lost";
    std::ranges::move(begin_all_that_may(kernel()), std::back_inserter(again));
  }
  for (const auto& one : again) EXPECT_EQ(one->finish(), Verdict::kOk);
  // The questions that were dropped were asked all the same.
  EXPECT_EQ(kernel().counters(1, 0).value_or(trusted::Counters{}).next_sent, 2 * slots_);
}

TEST_F(OpenQuestionsTest, a_thousand_askers_that_go_with_a_question_under_way_lose_no_slot) {
  const std::size_t times = scaled(1000);
  std::size_t asked = 0;
  for (const auto deadline = hang_deadline(); asked < times;) {
    ASSERT_FALSE(passed(deadline)) << "slots are lost";
    Asked goes(kernel());
    if (goes.begin()) ++asked;
  }
  std::size_t found = 0;
  for (const auto deadline = hang_deadline(); found < slots_; std::this_thread::yield()) {
    ASSERT_FALSE(passed(deadline)) << "slots are lost";
    const auto begun = begin_all_that_may(kernel());
    found = begun.size();
    for (const auto& one : begun) ASSERT_EQ(one->finish(), Verdict::kOk);
  }
}

// Of the transport itself, so that it is destroyed at once, and not by one that lingers.
TEST(AttestedWithDaemon, a_thousand_transports_that_go_with_questions_under_way_leave_nothing) {
  using leat::detail::AttestedTransport;
  using leat::detail::Wire;
  using leat::detail::WireTransport;
  constexpr auto kAlgorithm = trusted::Algorithm::kHmacSha256;
  Daemon daemon({"--max-clients", "2"});
  std::size_t descriptors = 0;
  for (std::size_t i = 0; i < scaled(1000); ++i) {
    Wire there, back;
    std::optional<trusted::detail::ChannelSession> isolated;
    for (const auto deadline = hang_deadline(); !isolated;) {
      try {
        isolated.emplace(trusted::detail::make_isolated_home({daemon.path()}, 0, kAlgorithm,
                                                             std::chrono::microseconds(0)),
                         kAlgorithm, true);
      } catch (const Error& error) {  // it may hear of the end of the one before only now
        ASSERT_EQ(error.code(), ErrorCode::kResource);
        ASSERT_FALSE(passed(deadline)) << "the daemon keeps its clients";
      }
    }
    AttestedTransport asks(std::make_unique<WireTransport>(there, back), std::move(*isolated));
    AttestedTransport peer(
        std::make_unique<WireTransport>(back, there),
        {trusted::detail::make_local_home(daemon.key_file(), kAlgorithm), kAlgorithm, false});
    asks.start(peer.setup());
    peer.start(asks.setup());
    ASSERT_TRUE(leat::detail::sent(peer.try_send({}, 0)));
    daemon.stop();
    leat::detail::Delivery delivery;
    EXPECT_EQ(asks.try_send({}, 0), leat::detail::SendResult::kUnderWay);
    EXPECT_EQ(asks.try_receive(0, delivery), leat::detail::ReceiveResult::kNothing);
    if (i == 0) descriptors = open_descriptors();
    EXPECT_EQ(open_descriptors(), descriptors);
    daemon.go_on();
  }
  EXPECT_EQ(Session(daemon).exchange(), Verdict::kOk);
}

TEST_F(OpenQuestionsTest, the_daemons_death_answers_what_is_under_way_and_what_comes_later) {
  Asked open(kernel()), other(kernel());
  daemon_.stop();
  ASSERT_TRUE(open.begin());
  open.open.arm(other.open);
  pollfd event{open.open.event_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&event, 1, 0), 0);
  daemon_.kill();
  EXPECT_EQ(poll(&event, 1, -1), 1);
  open.open.arm(other.open);
  EXPECT_EQ(open.finish(), Verdict::kUnavailable);
  // Its end ends no further sleep.
  open.open.arm(other.open);
  other.open.arm(open.open);
  EXPECT_EQ(poll(&event, 1, 0), 0);
  EXPECT_TRUE(other.begin());
  EXPECT_EQ(other.finish(), Verdict::kUnavailable);
}

// --- a daemon that lies

// Speaks the protocol as a test wants.
class FalseDaemon {
 public:
  explicit FalseDaemon(std::uint32_t slots = 2) : shape_{.slots = slots, .max_payload_bytes = 64} {
    const Fd listener = socket_at(path(), bind);
    check(listen(listener.get(), 1), "listen");
    std::thread client([&] { kernel_.emplace(path()); });
    socket_ = Fd(check(accept(listener.get(), nullptr, nullptr), "accept"));
    const Fd file(check(leat::detail::new_memfd("false-daemon"), "memfd_create"));
    check(ftruncate(file.get(), static_cast<off_t>(shape_.bytes())), "ftruncate");
    check(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), "fcntl");
    const Fd wake = leat::detail::new_event();
    const int descriptors[] = {file.get(), wake.get()};
    leat::detail::send_message(socket_.get(),
                               trusted::detail::encode({.shape = shape_, .device = 1, .epoch = 1}),
                               descriptors);
    memory_ = leat::detail::MappedMemory::of_file(
        file.get(), shape_.bytes(), leat::detail::MappedMemory::Protection::kReadWrite);
    client.join();
  }

  trusted::IsolatedKernel& kernel() { return *kernel_; }
  trusted::detail::RingSlot slot(std::uint32_t number) {
    return shape_.slot(memory_.data(), number);
  }
  void answer(std::uint32_t number, const trusted::detail::Reply& reply, std::uint32_t later = 0) {
    const auto place = slot(number);
    place.reply->body = reply;
    place.reply->sequence.store(place.request->sequence.load() + later, std::memory_order_release);
  }
  void say(std::size_t bytes) {
    for (; bytes != 0; --bytes)
      if (::send(socket_.get(), "", 1, MSG_DONTWAIT) < 0) return;
  }

 private:
  std::string path() const { return folder_.path() + "/socket"; }

  const leat::detail::ScratchFolder folder_;
  const trusted::detail::RingShape shape_;
  Fd socket_;
  leat::detail::MappedMemory memory_;
  std::optional<trusted::IsolatedKernel> kernel_;
};

TEST(FalseDaemons, what_was_not_asked_for_is_no_answer) {
  FalseDaemon daemon;
  Asked open(daemon.kernel());
  ASSERT_TRUE(open.begin());
  daemon.answer(0, {}, 1);
  EXPECT_FALSE(open.open.try_finish());
  daemon.answer(1, {});
  EXPECT_FALSE(open.open.try_finish());
  // An attestation of nothing at all.
  daemon.answer(0, {});
  EXPECT_TRUE(open.open.try_finish());
  EXPECT_EQ(open.question.verdict, Verdict::kUnavailable);
}

TEST(FalseDaemons, one_that_answers_beyond_all_verdicts_is_asked_nothing_more) {
  FalseDaemon daemon;
  Asked open(daemon.kernel());
  ASSERT_TRUE(open.begin());
  daemon.answer(0, {.verdict = 4711});
  EXPECT_TRUE(open.open.try_finish());
  EXPECT_EQ(open.question.verdict, Verdict::kUnavailable);
  const std::uint32_t before = daemon.slot(0).request->sequence.load();
  EXPECT_TRUE(open.begin());
  EXPECT_TRUE(open.open.try_finish());
  EXPECT_EQ(open.question.verdict, Verdict::kUnavailable);
  EXPECT_EQ(daemon.slot(0).request->sequence.load(), before);
  EXPECT_EQ(daemon.slot(1).request->sequence.load(), 0U);
}

TEST(FalseDaemons, a_flood_of_wakes_neither_holds_a_sleeper_nor_answers_it) {
  FalseDaemon daemon;
  Asked one(daemon.kernel()), other(daemon.kernel());
  ASSERT_TRUE(one.begin());
  ASSERT_TRUE(other.begin());
  daemon.say(100'000);
  pollfd event{one.open.event_fd(), POLLIN, 0};
  for (const auto deadline = hang_deadline(); poll(&event, 1, 0) != 0;) {
    ASSERT_FALSE(passed(deadline));
    one.open.arm(other.open);
  }
  EXPECT_FALSE(one.open.try_finish());
  // The other side sleeps: what this one takes may have been for it.
  other.open.arm(one.open);
  pollfd others{other.open.event_fd(), POLLIN, 0};
  ASSERT_EQ(poll(&others, 1, 0), 0);
  daemon.say(1);
  one.open.arm(other.open);
  EXPECT_EQ(poll(&event, 1, 0), 0);
  EXPECT_EQ(poll(&others, 1, 0), 1);
}

}  // namespace
}  // namespace leat::attestd
