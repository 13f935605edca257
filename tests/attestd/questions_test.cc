// Several questions to leat-attestd at once: as so many calls, whatever becomes of one of them.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "attestd/daemon.h"
#include "attestd/session.h"

namespace leat::attestd {
namespace {

using trusted::AttestationKernel;
using trusted::Question;
using trusted::Verdict;

Question to_attest(const Session& session, std::span<const std::byte> payload) {
  return {.asks = Question::Asks::kAttest,
          .statement = {.session = session.local.id()},
          .bytes = payload};
}

// So many records of the peer.
std::vector<std::vector<std::byte>> records_of_peer(Session& session, std::size_t count) {
  std::vector<std::vector<std::byte>> records(count);
  const std::vector<std::byte> payload(200);
  for (auto& record : records) {
    trusted::Proof proof;
    EXPECT_EQ(session.local.kernel().attest({.session = session.local.id()}, payload, proof),
              Verdict::kOk);
    record.resize(payload.size() + trusted::kRecordOverheadBytes);
    trusted::write_record(proof, payload, record);
  }
  return records;
}

// More records than the ring has slots and than one request carries; a forged one before every
// tenth, a missing one, and a payload that is too large between them. The second daemon's requests
// have room for eight replies.
TEST(Questions, of_several_records_the_bad_ones_are_told_and_no_others) {
  for (const char* max_payload : {"1048576", "1000"}) {
    const Daemon daemon({"--max-payload", max_payload});
    Session session(daemon);
    constexpr std::size_t kMissing = 555;
    const auto good = records_of_peer(session, 600);
    auto bad = good;
    for (auto& record : bad) record.back() ^= std::byte{1};
    bad[0].resize(50);
    const std::vector<std::byte> large(std::stoul(max_payload) + 1), small(10);
    std::vector<Question> questions;
    std::vector<Verdict> expected;
    const auto ask = [&](const Question& question, Verdict verdict) {
      questions.push_back(question);
      expected.push_back(verdict);
    };
    std::uint64_t attested = 0;
    for (std::size_t i = 0; i < good.size(); ++i) {
      if (i % 10 == 0) ask({.bytes = bad[i]}, i == 0 ? Verdict::kLength : Verdict::kMac);
      if (i != kMissing) ask({.bytes = good[i]}, i < kMissing ? Verdict::kOk : Verdict::kCounter);
      if (i % 50 != 0) continue;
      ask(to_attest(session, large), Verdict::kTooLarge);
      ask(to_attest(session, small), Verdict::kOk);
      ++attested;
      ask({.asks = Question::Asks::kVerifyStateless, .bytes = good[599]}, Verdict::kOk);
    }
    AttestationKernel& kernel = session.isolated.kernel();
    kernel.ask(questions);
    std::uint64_t counter = 0;
    for (std::size_t i = 0; i < questions.size(); ++i) {
      ASSERT_EQ(questions[i].verdict, expected[i]) << "question " << i;
      if (questions[i].asks != Question::Asks::kAttest || expected[i] != Verdict::kOk) continue;
      std::uint64_t said = 0;
      std::memcpy(&said, questions[i].proof.header.data() + 24, sizeof said);
      EXPECT_EQ(said, counter++);
    }
    const auto stands = kernel.counters(session.isolated.id(), 0).value_or(trusted::Counters{});
    EXPECT_EQ(stands.next_received, kMissing);
    EXPECT_EQ(stands.next_sent, attested);
    // Behind the gap nothing was accepted: with the missing one all of it is.
    for (std::size_t i = kMissing; i < good.size(); ++i)
      ASSERT_EQ(kernel.verify(good[i], trusted::Kind::kSend), Verdict::kOk);
  }
}

// Case 30: killed between two requests of one call, or in the middle of one.
TEST(Questions, killed_while_it_answers_several_leaves_no_gap_before_what_was_answered) {
  Daemon daemon;
  Session session(daemon);
  const std::vector<std::byte> payload(1000);
  std::vector<Question> questions(2000, to_attest(session, payload));
  std::uint64_t counter = 0;
  bool killed = false;
  std::thread kills([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    daemon.kill();
  });
  while (!killed) {
    session.isolated.kernel().ask(questions);
    for (const Question& question : questions) {
      if (question.verdict != Verdict::kOk) {
        EXPECT_EQ(question.verdict, Verdict::kUnavailable);
        killed = true;
        continue;
      }
      std::uint64_t said = 0;
      std::memcpy(&said, question.proof.header.data() + 24, sizeof said);
      EXPECT_FALSE(killed) << "an answer after there were none";
      EXPECT_EQ(said, counter++);
    }
  }
  kills.join();
  session.isolated.kernel().ask(questions);
  for (const Question& question : questions) ASSERT_EQ(question.verdict, Verdict::kUnavailable);
}

}  // namespace
}  // namespace leat::attestd
