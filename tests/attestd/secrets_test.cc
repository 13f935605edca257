// Case 35: what others can learn of leat-attestd's keys. tests/trusted/README.md numbers the cases.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "attestd/daemon.h"
#include "base/system_error.h"
#include "leat/channel.h"
#include "support/peer_pair.h"
#include "support/users.h"

namespace leat::attestd {
namespace {

using leat::detail::Program;
using leat::detail::scaled;
using leat::detail::ScratchFolder;
using testing::AllOf;
using testing::HasSubstr;

// Whether a process of this user may look into that one.
bool can_look_into(pid_t process) {
  const std::string folder = "/proc/" + std::to_string(process);
  const bool reads =
      std::ifstream(folder + "/mem").good() || std::ifstream(folder + "/maps").get() != EOF;
  std::byte byte{};
  iovec here{&byte, 1};
  iovec there{reinterpret_cast<void*>(0x400000), 1};
  const bool copies = process_vm_readv(process, &here, 1, &there, 1, 0) >= 0 || errno == EFAULT;
  const bool traces = ptrace(PTRACE_SEIZE, process, nullptr, nullptr) == 0;
  return reads || copies || traces;
}

TEST(AttestdSecrets, no_process_of_its_user_can_look_into_it) {
  // Root may look everywhere, so the daemon and the process that looks belong to another user.
  const bool root = geteuid() == 0;
  Daemon daemon({"--mode", "666"}, "nobody");
  const pid_t process = daemon.program().pid();
  ASSERT_FALSE(daemon.serves().empty()) << daemon.program().wait().err;
  leat::detail::run_process("looks", [&] {
    ASSERT_TRUE(!root || leat::detail::become_nobody());
    const pid_t ordinary = fork();
    if (ordinary == 0) {
      execl("/bin/sleep", "sleep", "60", nullptr);
      _exit(1);
    }
    for (const auto deadline = leat::detail::hang_deadline(); !can_look_into(ordinary);)
      ASSERT_FALSE(leat::detail::passed(deadline)) << "sees nothing anywhere";
    EXPECT_FALSE(can_look_into(process));
    kill(ordinary, SIGKILL);
    waitpid(ordinary, nullptr, 0);
  });
  std::ostringstream limits;
  limits << std::ifstream("/proc/" + std::to_string(process) + "/limits").rdbuf();
  if (root) {
    EXPECT_THAT(limits.str(), testing::ContainsRegex("Max core file size +0 +0"));
  }
}

void make_key(const std::string& path) {
  ASSERT_EQ(
      leat::detail::run_program("/bin/sh", {"-c", "umask 077; openssl rand -hex 32 > " + path})
          .exit_code,
      0);
}

// A key that this process never holds in clear: its digits and its bytes, each changed by a mask.
struct HiddenKey {
  static constexpr unsigned char kMask = 0x5a;

  explicit HiddenKey(const std::string& path) {
    const Fd file(open(path.c_str(), O_RDONLY));
    std::array<unsigned char, 64> digits;
    EXPECT_EQ(read(file.get(), digits.data(), digits.size()), 64);
    for (unsigned char& digit : digits) digit ^= kMask;
    text.assign(digits.begin(), digits.end());
    const auto value = [&](std::size_t i) {
      const int c = digits[i] ^ kMask;
      return c <= '9' ? c - '0' : c - 'a' + 10;
    };
    for (std::size_t i = 0; i < digits.size(); i += 2)
      bytes.push_back(static_cast<unsigned char>((value(i) * 16 + value(i + 1)) ^ kMask));
  }

  std::vector<unsigned char> text, bytes;
};

// How often the key stands in this memory.
std::size_t count_in(std::span<const unsigned char> memory,
                     const std::vector<unsigned char>& masked) {
  const auto same = [](unsigned char found, unsigned char wanted) {
    return (found ^ HiddenKey::kMask) == wanted;
  };
  std::size_t found = 0;
  for (auto at = memory.begin();; ++at, ++found) {
    at = std::search(at, memory.end(), masked.begin(), masked.end(), same);
    if (at == memory.end()) return found;
  }
}

// ... in all memory that this process can write.
std::size_t count_in_process(const std::vector<unsigned char>& masked) {
  std::size_t found = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(" rw") == std::string::npos) continue;
    const std::uint64_t start = std::stoull(line, nullptr, 16);
    const std::uint64_t end = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
    found += count_in({reinterpret_cast<const unsigned char*>(start), end - start}, masked);
  }
  return found;
}

TEST(AttestdSecrets, keys_are_in_no_client_and_in_no_log) {
  if (leat::detail::kSanitizer) GTEST_SKIP() << "a sanitizer's shadow memory has no end";
  const ScratchFolder folder;
  const std::string key_file = folder.path() + "/key";
  make_key(key_file);
  const leat::detail::ScratchVariable verbose("LEAT_LOG_LEVEL", "trace");
  Daemon daemon({}, "root", key_file);
  Connected both(daemon.options(), daemon.options());
  both.connecting->send("attested");
  EXPECT_EQ(both.accepted->receive().text(), "attested");

  const HiddenKey key(key_file);
  EXPECT_EQ(count_in_process(key.text), 0U);
  EXPECT_EQ(count_in_process(key.bytes), 0U);
  std::vector<unsigned char> shown = key.bytes;
  for (unsigned char& byte : shown) byte ^= HiddenKey::kMask;
  EXPECT_GE(count_in_process(key.bytes), 1U) << "the search finds nothing anywhere";

  kill(daemon.program().pid(), SIGTERM);
  const auto said = daemon.program().wait();
  for (const std::string& log : {said.out, said.err})
    EXPECT_EQ(count_in({reinterpret_cast<const unsigned char*>(log.data()), log.size()}, key.text),
              0U);
}

// All that is read of a process by its open /proc/PID/maps and mem: what it can write.
std::vector<unsigned char> read_all(int maps, int memory) {
  std::string text;
  std::array<char, 4096> some;
  for (ssize_t got = 0; (got = read(maps, some.data(), some.size())) > 0;)
    text.append(some.data(), static_cast<std::size_t>(got));
  std::vector<unsigned char> all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" rw") == std::string::npos) continue;
    const std::size_t start = std::stoull(line, nullptr, 16);
    const std::size_t bytes = std::stoull(line.substr(line.find('-') + 1), nullptr, 16) - start;
    const std::size_t before = all.size();
    all.resize(before + bytes);
    const ssize_t got = pread(memory, &all[before], bytes, static_cast<off_t>(start));
    all.resize(before + static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  }
  return all;
}

// What another process of the daemon's user gets hold of while the daemon starts: its memory, by
// files that stay open, or the right to trace it.
class Onlooker {
 public:
  enum class How { kMemory, kTrace };

  Onlooker(pid_t process, How how) : process_(process), how_(how), thread_([this] { look(); }) {}
  ~Onlooker() { stop(); }
  Onlooker(const Onlooker&) = delete;
  Onlooker& operator=(const Onlooker&) = delete;

  // What it can still read.
  std::vector<unsigned char> sees() {
    stop();
    return read_all(maps_.get(), memory_.get());
  }

 private:
  // Again and again, because what was got before exec() is not the daemon's.
  void look() {
    const std::string folder = "/proc/" + std::to_string(process_);
    while (!over_.load(std::memory_order_relaxed)) {  // only its value counts
      if (how_ == How::kTrace) {
        if (ptrace(PTRACE_SEIZE, process_, nullptr, nullptr) == 0) break;
        continue;
      }
      Fd memory(open((folder + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
      Fd maps(open((folder + "/maps").c_str(), O_RDONLY | O_CLOEXEC));
      if (!memory || !maps) continue;
      memory_ = std::move(memory);
      maps_ = std::move(maps);
    }
    while (!over_.load(std::memory_order_relaxed)) std::this_thread::yield();
  }
  void stop() {
    over_.store(true, std::memory_order_relaxed);
    if (thread_.joinable()) thread_.join();
  }

  const pid_t process_;
  const How how_;
  Fd memory_, maps_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

// Starts the daemon many times as one user, of whom another process waits for it.
void expect_to_find_no_key(const std::string& program) {
  if (leat::detail::kSanitizer) GTEST_SKIP() << "a sanitizer's shadow memory has no end";
  leat::detail::run_process("starts", [&] {
    ASSERT_TRUE(geteuid() != 0 || leat::detail::become_nobody());
    const ScratchFolder folder;
    const std::string key_file = folder.path() + "/key";
    make_key(key_file);
    const HiddenKey key(key_file);
    const std::size_t starts = scaled(200);
    for (std::size_t i = 0; i < starts; ++i) {
      Program daemon(program, {"--socket", folder.path() + "/socket", "--key-file", key_file});
      Onlooker onlooker(daemon.pid(), i % 2 == 0 ? Onlooker::How::kMemory : Onlooker::How::kTrace);
      if (daemon.wait_for("system calls").empty()) {
        EXPECT_THAT(daemon.wait().err, HasSubstr(" traces leat-attestd"));
        continue;
      }
      const std::vector<unsigned char> seen = onlooker.sees();
      EXPECT_TRUE(seen.empty()) << seen.size() << " bytes at start " << i;
      EXPECT_EQ(count_in(seen, key.text) + count_in(seen, key.bytes), 0U) << "at start " << i;
    }
  });
}

TEST(AttestdSecrets, who_waits_for_its_start_finds_no_key) {
  expect_to_find_no_key("src/attestd/leat-attestd");
}

TEST(AttestdSecrets, who_waits_for_the_start_of_a_program_that_its_user_cannot_read_finds_no_key) {
  if (geteuid() != 0) GTEST_SKIP() << "another user is needed";
  const ScratchFolder folder;
  ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  expect_to_find_no_key(
      folder.write("leat-attestd",
                   leat::detail::read_file(LEAT_BUILD_FOLDER "/src/attestd/leat-attestd"), 0711));
}

// Makes a system call fail, for this process and its children.
void forbid(unsigned call, unsigned failure) {
  std::array<sock_filter, 4> filter{{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                     BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
                                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | failure),
                                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog program{filter.size(), filter.data()};
  leat::detail::check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)");
  leat::detail::check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), "prctl(SECCOMP)");
}

TEST(AttestdSecrets, root_itself_reads_no_key_file_in_its_memory_where_linux_has_secret_memory) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may look";
  if (leat::detail::kSanitizer) GTEST_SKIP() << "a sanitizer's shadow memory has no end";
  for (const bool taken_away : {false, true}) {
    leat::detail::run_process("looks", [&] {
      if (taken_away) forbid(SYS_memfd_secret, ENOSYS);  // as before Linux 5.14
      const bool secret = Fd(static_cast<int>(syscall(SYS_memfd_secret, O_CLOEXEC))).get() >= 0;
      const ScratchFolder folder;
      const std::string key_file = folder.path() + "/key";
      make_key(key_file);
      const HiddenKey key(key_file);
      Daemon daemon({}, "root", key_file);
      const std::string process = "/proc/" + std::to_string(daemon.program().pid());
      const Fd maps(open((process + "/maps").c_str(), O_RDONLY | O_CLOEXEC));
      const Fd memory(open((process + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
      const std::vector<unsigned char> seen = read_all(maps.get(), memory.get());
      EXPECT_FALSE(seen.empty());
      EXPECT_EQ(count_in(seen, key.text), 0U);
      EXPECT_EQ(count_in(seen, key.bytes), secret ? 0U : 1U) << "taken away: " << taken_away;
    });
  }
}

TEST(AttestdSecrets, where_it_cannot_hide_it_takes_no_key_and_says_what_to_do) {
  leat::detail::run_process("starts", [] {
    ASSERT_TRUE(geteuid() != 0 || leat::detail::become_nobody());
    forbid(SYS_memfd_create, EACCES);  // as vm.memfd_noexec=2 does for programs
    const auto result =
        leat::detail::run_program("src/attestd/leat-attestd", {"--key-file", "/nowhere"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr("cannot hide"), HasSubstr("vm.memfd_noexec"),
                                  HasSubstr("mode 0711")));
  });
}

TEST(AttestdSecrets, under_a_tracer_it_takes_no_key) {
  const ScratchFolder folder;
  const std::string err = folder.path() + "/err";
  const pid_t traced = fork();
  if (traced == 0) {
    // A key file that cannot be read, to see what is refused first.
    dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600), STDERR_FILENO);
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    execl(LEAT_BUILD_FOLDER "/src/attestd/leat-attestd", "leat-attestd", "--key-file", "/nowhere",
          "--user", "root", nullptr);
    _exit(127);
  }
  int status = 0;
  while (waitpid(traced, &status, 0) == traced && WIFSTOPPED(status))
    ptrace(PTRACE_CONT, traced, nullptr, nullptr);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(leat::detail::read_file(err),
              HasSubstr("process " + std::to_string(getpid()) + " traces leat-attestd"));
}

}  // namespace
}  // namespace leat::attestd
