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

// What the killed process asks: to attest. Or tells: an append returned.
struct Question {
  Statement statement;
  bool told = false;
  std::uint64_t index = 0;  // told: of which
  std::uint32_t bytes = 0;
  std::array<std::byte, 256> payload;
};
struct Answered {
  Verdict verdict;
  Proof proof;
};

// The attestation kernel as the process sees it: it attests over a socket. Other answers are those
// of before the fork; an isolated kernel would give the same ones while nothing else attests.
class DistantKernel final : public ForwardingKernel {
 public:
  DistantKernel(AttestationKernel& kernel, int socket)
      : ForwardingKernel(kernel), socket_(socket) {}

  Verdict attest(const Statement& statement, std::span<const std::byte> payload,
                 Proof& proof) noexcept override {
    Question question{.statement = statement, .bytes = static_cast<std::uint32_t>(payload.size())};
    std::copy(payload.begin(), payload.end(), question.payload.begin());
    Answered answer;
    if (::send(socket_, &question, sizeof question, 0) < 0 ||
        ::recv(socket_, &answer, sizeof answer, 0) != sizeof answer)
      return Verdict::kUnavailable;
    proof = answer.proof;
    return answer.verdict;
  }
  void tell(std::uint64_t index) {
    const Question told{.told = true, .index = index};
    (void)::send(socket_, &told, sizeof told, 0);
  }

 private:
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
  Question question;
  while (::recv(socket, &question, sizeof question, 0) == sizeof question) {
    if (!killer.joinable())
      killer = std::thread([=] {
        std::this_thread::sleep_for(life);
        kill(process, SIGKILL);
      });
    if (question.told) {
      told = question.index + 1;
      continue;
    }
    Answered answer;
    answer.verdict = kernel.attest(question.statement,
                                   std::span(question.payload).first(question.bytes), answer.proof);
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
