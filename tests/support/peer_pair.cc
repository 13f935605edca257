#include "support/peer_pair.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/system_error.h"
#include "support/scale.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

// Read by ThreadSanitizer, in each program with peers. To a forked side, a thread that has ended
// but that its parent has not joined yet, such as the lingerer's, looks like one that is never
// joined. A listener is a thread, and what a child that was forked beside it may do is tested.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "report_thread_leaks=0:die_after_fork=0"; }

namespace leat::detail {
namespace {

constexpr std::array<const char*, 2> kSideNames{"first side", "second side"};
constexpr int kExitWithFailures = 1;
constexpr std::size_t kMaxReportBytes = 16'384;

std::array<Fd, 2> packet_sockets() {
  std::array<int, 2> sockets{};
  check(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()), "socketpair");
  return {Fd(sockets[0]), Fd(sockets[1])};
}

void run_body(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "exception: " << error.what();
  }
}

// --- Processes: what a child EXPECTs goes to its parent, one packet for each failure.

class ReportingListener final : public testing::EmptyTestEventListener {
 public:
  explicit ReportingListener(Fd reports) : reports_(std::move(reports)) {}

  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.passed()) return;
    const char* file = result.file_name() == nullptr ? "" : result.file_name();
    std::string report = std::to_string(result.line_number()) + '\n' + file + '\n';
    report += result.skipped() ? "a side of a test cannot skip it" : result.message();
    report.resize(std::min(report.size(), kMaxReportBytes));
    if (::send(reports_.get(), report.data(), report.size(), MSG_NOSIGNAL) < 0)
      std::perror("report");
  }

 private:
  Fd reports_;
};

struct Child {
  std::string name;
  pid_t process = 0;
  Fd reports;
  bool reported_failure = false;
};

bool leaks_found() {
#if defined(__SANITIZE_ADDRESS__)
  return __lsan_do_recoverable_leak_check() != 0;
#else
  return false;
#endif
}

bool is_child = false;

// A child ends before the registry of tests is destroyed, of which it would copy every page. What
// was registered later has run by then: the lingerer's wait, the static objects of leat.
// ThreadSanitizer says only at a usual end what it has found.
[[maybe_unused]] const bool kChildKeepsTheRegistry = [] {
  testing::UnitTest::GetInstance();
  const auto end = [](int status, void* /*unused*/) {
    if (!is_child || kThreadSanitizer) return;
    std::fflush(nullptr);
    ::_exit(status);
  };
  return ::on_exit(end, nullptr) == 0;
}();

[[noreturn]] void run_child(const std::function<void()>& body, Fd reports) {
  is_child = true;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  delete listeners.Release(listeners.default_xml_generator());
  static ReportingListener* reporting = nullptr;  // not null in the child of a child
  delete listeners.Release(reporting);
  reporting = new ReportingListener(std::move(reports));
  listeners.Append(reporting);
  run_body(body);
  if (leaks_found()) ADD_FAILURE() << "memory leaked, see standard error";
  // As a program ends, so that closed channels get rid of what they still have to send.
  std::exit(testing::Test::HasFailure() ? kExitWithFailures : 0);
}

Child start_child(const std::string& name, const std::function<void()>& body) {
  std::array<Fd, 2> sockets = packet_sockets();
  std::fflush(nullptr);
  const pid_t process = check(::fork(), "fork");
  if (process == 0) {
    sockets[0].reset();
    run_child(body, std::move(sockets[1]));
  }
  return {name, process, std::move(sockets[0])};
}

// Takes one report; closes the socket at the end.
void take_report(Child& child) {
  std::string report(kMaxReportBytes, '\0');
  const ssize_t bytes = ::recv(child.reports.get(), report.data(), report.size(), 0);
  if (bytes <= 0) {
    child.reports.reset();
    return;
  }
  report.resize(static_cast<std::size_t>(bytes));
  const std::size_t line_end = report.find('\n');
  const std::size_t file_end = report.find('\n', line_end + 1);
  const std::string file = report.substr(line_end + 1, file_end - line_end - 1);
  ADD_FAILURE_AT(file.c_str(), std::atoi(report.c_str()))
      << "[" << child.name << "] " << report.substr(file_end + 1);
  child.reported_failure = true;
}

// Until every child has closed its reports, which it does by ending.
void take_reports(std::span<Child> children) {
  const Deadline deadline = deadline_after(3 * hang_limit());
  while (true) {
    std::vector<pollfd> waits;
    for (const Child& child : children) waits.push_back({child.reports.get(), POLLIN, 0});
    bool all_ended = true;
    for (const Child& child : children) all_ended = all_ended && !child.reports;
    if (all_ended) return;
    const int ready = ::poll(waits.data(), waits.size(), poll_timeout_ms(deadline));
    if (ready < 0 && errno != EINTR) throw system_error("poll", errno);
    if (ready == 0 && passed(deadline)) {
      for (Child& child : children) {
        if (!child.reports) continue;
        ADD_FAILURE() << "[" << child.name << "] hangs and is killed";
        ::kill(child.process, SIGKILL);
        child.reports.reset();
      }
      return;
    }
    for (std::size_t i = 0; i < waits.size(); ++i) {
      if (children[i].reports && waits[i].revents != 0) take_report(children[i]);
    }
  }
}

void expect_end(const Child& child, SecondEnds ends) {
  int status = 0;
  check(::waitpid(child.process, &status, 0), "waitpid");
  if (ends == SecondEnds::kBySignal) {
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        << "[" << child.name << "] did not end by SIGKILL; status " << status;
  } else if (WIFSIGNALED(status)) {
    ADD_FAILURE() << "[" << child.name << "] died of signal " << WTERMSIG(status) << " ("
                  << ::strsignal(WTERMSIG(status)) << ")";
  } else if (WEXITSTATUS(status) != 0 && !child.reported_failure) {
    ADD_FAILURE() << "[" << child.name << "] exited with " << WEXITSTATUS(status);
  }
}

void run_processes(const PeerBody& first, const PeerBody& second, SecondEnds second_ends) {
  std::array<Fd, 2> sockets = packet_sockets();
  std::array<Child, 2> children;
  children[1] = start_child(kSideNames[1], [&] {
    sockets[0].reset();
    Peer peer(PeerMode::kProcesses, std::move(sockets[1]));
    second(peer);
  });
  children[0] = start_child(kSideNames[0], [&] {
    sockets[1].reset();
    children[1].reports.reset();
    Peer peer(PeerMode::kProcesses, std::move(sockets[0]));
    peer.set_other_process(children[1].process);
    first(peer);
  });
  for (Fd& socket : sockets) socket.reset();
  take_reports(children);
  expect_end(children[0], SecondEnds::kByReturning);
  expect_end(children[1], second_ends);
}

// --- Threads

void run_threads(std::span<const std::string> names,
                 std::span<const std::function<void()>> bodies) {
  std::mutex mutex;
  std::condition_variable ended;
  std::vector<bool> has_ended(bodies.size());
  const auto all_ended = [&] {
    return std::find(has_ended.begin(), has_ended.end(), false) == has_ended.end();
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    threads.emplace_back([&, i] {
      {
        SCOPED_TRACE(names[i]);
        run_body(bodies[i]);
      }
      const std::lock_guard lock(mutex);
      has_ended[i] = true;
      ended.notify_one();
    });
  }
  {
    std::unique_lock lock(mutex);
    if (!ended.wait_until(lock, deadline_after(3 * hang_limit()), all_ended)) {
      for (std::size_t i = 0; i < has_ended.size(); ++i) {
        if (!has_ended[i]) std::fprintf(stderr, "the %s of the test hangs\n", names[i].c_str());
      }
      std::abort();
    }
  }
  for (std::thread& thread : threads) thread.join();
}

void run_pair_of_threads(const PeerBody& first, const PeerBody& second) {
  std::array<Fd, 2> sockets = packet_sockets();
  const auto side = [&](const PeerBody& body, Fd& socket) {
    return [&body, &socket] {
      Peer peer(PeerMode::kThreads, std::move(socket));
      body(peer);
    };
  };
  const std::array<std::string, 2> names{kSideNames[0], kSideNames[1]};
  const std::array<std::function<void()>, 2> bodies{side(first, sockets[0]),
                                                    side(second, sockets[1])};
  run_threads(names, bodies);
}

}  // namespace

std::string to_string(PeerMode mode) {
  return mode == PeerMode::kThreads ? "threads" : "processes";
}

void PrintTo(PeerMode mode, std::ostream* out) { *out << to_string(mode); }

// A word travels behind one byte, so that an empty word is not taken for the end.
void Peer::tell(std::string_view word) {
  const std::string packet = "=" + std::string(word);
  if (word.size() > kMaxWordBytes) throw std::invalid_argument("Peer::tell: word too long");
  if (::send(socket_.get(), packet.data(), packet.size(), MSG_NOSIGNAL) < 0) {
    throw std::runtime_error("the other side has ended, it cannot be told anything");
  }
}

std::string Peer::hear() {
  const Deadline deadline = hang_deadline();
  pollfd wait{socket_.get(), POLLIN, 0};
  while (::poll(&wait, 1, poll_timeout_ms(deadline)) <= 0) {
    if (passed(deadline)) throw std::runtime_error("the other side says nothing");
  }
  std::string packet(kMaxWordBytes + 1, '\0');
  const ssize_t bytes = ::recv(socket_.get(), packet.data(), packet.size(), 0);
  if (bytes <= 0) throw std::runtime_error("the other side has ended without a word");
  packet.resize(static_cast<std::size_t>(bytes));
  return packet.substr(1);
}

bool Peer::has_word() const {
  pollfd wait{socket_.get(), POLLIN, 0};
  return ::poll(&wait, 1, 0) == 1;
}

void Peer::hear(std::string_view word) {
  const std::string heard = hear();
  if (heard != word) {
    throw std::runtime_error("heard '" + heard + "' where '" + std::string(word) + "' was due");
  }
}

void Peer::hear_bytes(std::span<std::byte> bytes) {
  const std::string word = hear();
  if (word.size() != bytes.size()) throw std::runtime_error("heard a value of another size");
  std::memcpy(bytes.data(), word.data(), bytes.size());
}

void Peer::barrier() {
  tell("barrier");
  hear("barrier");
}

void Peer::await_end() {
  const Deadline deadline = hang_deadline();
  pollfd wait{socket_.get(), POLLIN, 0};
  while (::poll(&wait, 1, poll_timeout_ms(deadline)) <= 0) {
    if (passed(deadline)) throw std::runtime_error("the other side does not end");
  }
  char byte = 0;
  if (::recv(socket_.get(), &byte, 1, MSG_PEEK) > 0) {
    throw std::runtime_error("heard '" + hear() + "' where the end was due");
  }
}

void Peer::kill_other() {
  if (other_process_ == 0)
    throw std::logic_error("only the first of two processes kills the other");
  check(::kill(other_process_, SIGKILL), "kill");
}

void run_pair(PeerMode mode, const PeerBody& first, const PeerBody& second,
              SecondEnds second_ends) {
  if (mode == PeerMode::kProcesses) return run_processes(first, second, second_ends);
  if (second_ends != SecondEnds::kByReturning) throw std::logic_error("a thread cannot vanish");
  run_pair_of_threads(first, second);
}

void run_parties(PeerMode mode, unsigned count, const std::function<void(unsigned)>& body,
                 std::optional<unsigned> killed) {
  std::vector<std::string> names;
  std::vector<std::function<void()>> bodies;
  for (unsigned party = 0; party < count; ++party) {
    names.push_back("party " + std::to_string(party));
    bodies.push_back([&body, party] { body(party); });
  }
  if (mode == PeerMode::kThreads) {
    if (killed) throw std::logic_error("a thread cannot be killed");
    return run_threads(names, bodies);
  }
  std::vector<Child> children;
  for (unsigned party = 0; party < count; ++party) {
    children.push_back(start_child(names[party], [&] {
      for (Child& earlier : children) earlier.reports.reset();
      bodies[party]();
    }));
  }
  take_reports(children);
  for (unsigned party = 0; party < count; ++party)
    expect_end(children[party], party == killed ? SecondEnds::kBySignal : SecondEnds::kByReturning);
}

void run_process(const std::string& name, const std::function<void()>& body) {
  Child child = start_child(name, body);
  take_reports({&child, 1});
  expect_end(child, SecondEnds::kByReturning);
}

}  // namespace leat::detail
