// The process that keeps the logs is killed at any point, and the attestation kernel, here in this
// process, goes on.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "support/scale.h"
#include "support/scratch.h"
#include "trusted/a2m_support.h"

namespace leat::trusted {
namespace {

// What the killed process asks its attestor, or tells: an append returned.
struct HostQuestion {
  enum class Asks { kAttest, kVerify, kCounters, kSession, kTells } asks = Asks::kAttest;
  Statement statement;
  std::uint64_t index = 0;  // kTells: of which
  std::uint32_t bytes = 0;
  std::array<std::byte, 512> data;  // payload or record
};
struct Answered {
  Verdict verdict = Verdict::kOk;
  Proof proof;
  std::optional<Counters> counters;
  std::optional<Session> session;
};

// The attestation kernel as the process sees it: over a socket.
class DistantKernel final : public ForwardingKernel {
 public:
  DistantKernel(AttestationKernel& kernel, int socket)
      : ForwardingKernel(kernel), socket_(socket) {}

  Verdict attest(const Statement& statement, std::span<const std::byte> payload,
                 Proof& proof) noexcept override {
    const Answered answer = over_socket({.statement = statement}, payload);
    proof = answer.proof;
    return answer.verdict;
  }
  Verdict verify_stateless(std::span<const std::byte> record, Kind expected) noexcept override {
    return over_socket({.asks = HostQuestion::Asks::kVerify, .statement = {.kind = expected}},
                       record)
        .verdict;
  }
  std::optional<Counters> counters(std::uint32_t session, std::uint8_t stream) noexcept override {
    return over_socket({.asks = HostQuestion::Asks::kCounters,
                        .statement = {.session = session, .stream = stream}})
        .counters;
  }
  std::optional<Session> session(std::uint32_t id) noexcept override {
    return over_socket({.asks = HostQuestion::Asks::kSession, .statement = {.session = id}})
        .session;
  }
  void tell(std::uint64_t index) {
    const HostQuestion told{.asks = HostQuestion::Asks::kTells, .index = index};
    (void)::send(socket_, &told, sizeof told, 0);
  }

 private:
  Answered over_socket(HostQuestion question, std::span<const std::byte> data = {}) const noexcept {
    question.bytes = static_cast<std::uint32_t>(data.size());
    std::copy(data.begin(), data.end(), question.data.begin());
    Answered answer;
    if (::send(socket_, &question, sizeof question, 0) < 0 ||
        ::recv(socket_, &answer, sizeof answer, 0) != sizeof answer)
      return {.verdict = Verdict::kUnavailable, .proof = {}, .counters = {}, .session = {}};
    return answer;
  }

  const int socket_;
};

std::string context_at(std::uint64_t index) {
  return std::string(index % 65, static_cast<char>('a' + index % 26));
}

// Until it is killed.
[[noreturn]] void keep_logs(DistantKernel& kernel, const std::string& folder, std::uint32_t nonce) {
  try {
    AttestedMemory memory(kernel, options_of(folder, true));
    for (;; ++nonce) {
      for (int i = 0; i < 5; ++i) {
        // Alone in appending: it knows the index before.
        const std::uint64_t index = memory.bounds(kFirstLog).tail;
        memory.append(kFirstLog, bytes_of(context_at(index)));
        kernel.tell(index);
      }
      const LogBounds bounds = memory.bounds(kFirstLog);
      memory.truncate(kFirstLog, bounds.head + (bounds.tail - bounds.head) / 8, nonce_of(nonce));
    }
  } catch (...) {
    _exit(1);
  }
}

// Answers until the process is killed, some microseconds after its first question. Returns the last
// index that was told, plus 1.
std::uint64_t serve_until_killed(AttestationKernel& kernel, int socket, pid_t process,
                                 std::chrono::microseconds life) {
  std::uint64_t told = 0;
  std::thread killer;
  HostQuestion question;
  while (::recv(socket, &question, sizeof question, 0) == sizeof question) {
    using Asks = HostQuestion::Asks;
    if (!killer.joinable())
      killer = std::thread([=] {
        std::this_thread::sleep_for(life);
        kill(process, SIGKILL);
      });
    if (question.asks == Asks::kTells) {
      told = question.index + 1;
      continue;
    }
    Answered answer;
    const auto data = std::span(question.data).first(question.bytes);
    const Statement& statement = question.statement;
    if (question.asks == Asks::kAttest)
      answer.verdict = kernel.attest(statement, data, answer.proof);
    else if (question.asks == Asks::kVerify)
      answer.verdict = kernel.verify_stateless(data, statement.kind);
    else if (question.asks == Asks::kCounters)
      answer.counters = kernel.counters(statement.session, statement.stream);
    else
      answer.session = kernel.session(statement.session);
    (void)::send(socket, &answer, sizeof answer, MSG_NOSIGNAL);
  }
  if (killer.joinable()) killer.join();
  int status = 0;
  waitpid(process, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "it ended by itself";
  return told;
}

TEST(A2mCrash, whoever_keeps_the_logs_may_be_killed_at_any_point) {
  const leat::detail::ScratchFolder scratch;
  const std::string folder = scratch.path() + "/a2m";
  std::uint64_t epoch = 0;
  std::unique_ptr<WriterKernel> kernel;
  std::unique_ptr<ReaderKernel> own;
  std::mt19937 random(77);
  std::set<std::uint64_t> may_be_lost;
  std::uint64_t losses = 0;
  const std::size_t kills = leat::detail::scaled(200);
  for (std::size_t round = 0; round < kills; ++round) {
    if (!kernel) {
      ++epoch;
      kernel = std::make_unique<WriterKernel>(epoch);
      own = std::make_unique<ReaderKernel>(epoch);
      std::filesystem::remove_all(folder);
      may_be_lost.clear();
    }
    int sockets[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    const pid_t process = fork();
    ASSERT_GE(process, 0);
    if (process == 0) {
      close(sockets[0]);
      DistantKernel distant(*kernel, sockets[1]);
      keep_logs(distant, folder, static_cast<std::uint32_t>(round) << 16);
    }
    close(sockets[1]);
    const std::uint64_t told = serve_until_killed(*kernel, sockets[0], process,
                                                  std::chrono::microseconds(random() % 5000));
    close(sockets[0]);

    AttestedMemory memory(*kernel, options_of(folder, true));
    const Recovery& found = memory.recoveries().front();
    const Recovery& manifest = memory.recoveries().back();
    // One append was under way, and its number may be lost. The rest is there.
    ASSERT_LE(found.lost + manifest.lost, 1U) << "round " << round;
    losses += found.lost + manifest.lost;
    for (const auto& range : found.lost_ranges) {
      ASSERT_GE(range.first, told) << "an append that had returned";
      may_be_lost.insert(range.first);
    }
    const LogBounds bounds = memory.bounds(kFirstLog);
    Record record;
    for (std::uint64_t i = bounds.head; i < bounds.tail; ++i) {
      const LookupStatus status = memory.lookup(kFirstLog, i, record);
      if (status == LookupStatus::kLost) {
        ASSERT_TRUE(may_be_lost.contains(i));
        continue;
      }
      ASSERT_EQ(own->verify_stateless(record, Kind::kLog), Verdict::kOk);
      const auto entry = read_entry(record);
      if (entry->kind == EntryKind::kContext) {
        ASSERT_EQ(context_of(record), context_at(i));
      }
    }
    // A verifier finds everything in order, or says that something is missing if that is so.
    A2mVerifier verifier(*own, kManifestLog);
    ASSERT_EQ(learn(verifier, memory, kFirstLog),
              manifest.lost == 0 ? Finding::kOk : Finding::kMissing);
    if (manifest.lost > 0) {
      kernel.reset();  // nobody believes this host any more: a new epoch
      continue;
    }
    const auto lost_here = may_be_lost.lower_bound(memory.bounds(kFirstLog).head);
    ASSERT_EQ(verifier.verify_all(kFirstLog, shows(memory)),
              lost_here == may_be_lost.end() ? Finding::kOk : Finding::kMissing);
  }
  RecordProperty("kills", static_cast<int>(kills));
  RecordProperty("epochs", static_cast<int>(epoch));
  RecordProperty("numbers_lost", static_cast<int>(losses));
}

}  // namespace
}  // namespace leat::trusted
