// Runs cases, each in two processes of its own, and prints what they say. Either process can be
// started by a runner, such as leat-run.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "case.h"
#include "exec.h"

namespace posix_cases {
namespace {

constexpr const char* kHelp =
    R"(Usage: posix_cases [--server-runner COMMAND] [--client-runner COMMAND] [--jobs N] [--list] [NAME...]

Runs the cases that are named or whose names begin with one of NAME, or all, and prints their transcripts.
Each side of a case is started as "COMMAND posix_cases ...". Exits 1 if a case hung.
)";
// Only what hangs takes so long, also on a busy or emulated machine.
constexpr auto kPatience = std::chrono::seconds(180);

Cases all_cases() {
  Cases all;
  for (const auto& group :
       {transfer_cases,     call_cases,       nonblocking_cases, option_cases,
        timeout_cases,      shutdown_cases,   fault_cases,       end_cases,
        pointer_cases,      descriptor_cases, exhaustion_cases,  process_cases,
        exec_cases,         poll_cases,       epoll_cases,       epoll_mixed_cases,
        stdio_cases,        signal_cases,     thread_cases,      connect_cases,
        address_cases,      fortified_cases,  command_cases,     epoll_order_cases,
        epoll_shared_cases, raw_cases,        syscall_cases,     io_uring_cases,
        listener_cases,     sleeper_cases,    many_cases,        fork_cases,
        handler_cases,      order_cases,      ending_cases,      limit_cases,
        spawn_cases,        jump_cases}) {
    const Cases cases = group();
    all.insert(all.end(), cases.begin(), cases.end());
  }
  return all;
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> result;
  for (std::string word; stream >> word;) result.push_back(word);
  return result;
}

// A pipe whose ends no process inherits unless told to.
struct Pipe {
  Pipe() { require(::pipe2(ends, O_CLOEXEC) == 0, "pipe2"); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    ::close(ends[0]);
    if (ends[1] >= 0) ::close(ends[1]);
  }
  int read_end() const { return ends[0]; }
  int write_end() const { return ends[1]; }
  void close_write_end() { ::close(std::exchange(ends[1], -1)); }

  int ends[2] = {-1, -1};
};

// One side of a case under way.
class Process {
 public:
  Process(const std::string& runner, const char* role, const std::string& name, int tell,
          int hear) {
    std::vector<std::string> command = words(runner);
    command.insert(command.end(), {"/proc/self/exe", "--side", role, name});
    // A runner is another program, so that it cannot mean itself by /proc/self/exe.
    char self[4096] = {};
    require(::readlink("/proc/self/exe", self, sizeof(self) - 1) > 0, "readlink");
    *(command.end() - 4) = self;
    std::vector<char*> arguments;
    arguments.reserve(command.size() + 1);
    for (std::string& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);

    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, 2, 1);
    ::posix_spawn_file_actions_adddup2(&actions, transcript_.write_end(), kTranscript);
    ::posix_spawn_file_actions_adddup2(&actions, tell, kTell);
    ::posix_spawn_file_actions_adddup2(&actions, hear, kHear);
    ::posix_spawnattr_init(&attributes);
    // A group of its own, to end what it leaves behind.
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    errno = ::posix_spawnp(&pid_, arguments[0], &actions, &attributes, arguments.data(), environ);
    require(errno == 0, arguments[0]);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
    transcript_.close_write_end();
  }

  int transcript() const { return transcript_.read_end(); }
  // False at the end of the transcript.
  bool read_some() {
    char part[4096];
    const ssize_t got = ::read(transcript(), part, sizeof(part));
    if (got <= 0) return open_ = false;
    text_.append(part, static_cast<std::size_t>(got));
    return true;
  }
  bool open() const { return open_; }
  // Ends all of its group and says how it ended itself, unless well.
  std::string finish(bool hung) {
    if (hung) text_ += "HUNG\n";
    if (hung) ::kill(-pid_, SIGKILL);
    int status = -1;
    require(::waitpid(pid_, &status, 0) == pid_, "waitpid");
    ::kill(-pid_, SIGKILL);
    if (!hung && WIFSIGNALED(status)) text_ += "signal " + std::to_string(WTERMSIG(status)) + "\n";
    if (!hung && WIFEXITED(status) && WEXITSTATUS(status) != 0) {
      text_ += "exit " + std::to_string(WEXITSTATUS(status)) + "\n";
    }
    return text_;
  }

 private:
  Pipe transcript_;
  pid_t pid_ = -1;
  bool open_ = true;
  std::string text_;
};

struct Runners {
  std::string server;
  std::string client;
};

struct Outcome {
  std::string text;
  bool hung = false;
};

Outcome run_case(const Case& which, const Runners& runners) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  Pipe to_client;
  Pipe to_server;
  Process server(runners.server, "server", which.name, to_client.write_end(), to_server.read_end());
  Process client(runners.client, "client", which.name, to_server.write_end(), to_client.read_end());
  to_client.close_write_end();
  to_server.close_write_end();
  Outcome outcome;
  while ((server.open() || client.open()) && !outcome.hung) {
    pollfd polled[] = {{server.open() ? server.transcript() : -1, POLLIN, 0},
                       {client.open() ? client.transcript() : -1, POLLIN, 0}};
    ::poll(polled, 2, 100);
    if (polled[0].revents != 0) server.read_some();
    if (polled[1].revents != 0) client.read_some();
    outcome.hung = std::chrono::steady_clock::now() > deadline;
  }
  for (const auto& [role, process] : {std::pair{"server", &server}, std::pair{"client", &client}}) {
    std::istringstream lines(process->finish(outcome.hung));
    for (std::string line; std::getline(lines, line);) {
      outcome.text += std::string(which.name) + " " + role + ": " + line + "\n";
    }
  }
  return outcome;
}

int run_cases(const Cases& cases, const Runners& runners, unsigned jobs) {
  std::vector<Outcome> outcomes(cases.size());
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < jobs; ++i) {
    workers.emplace_back([&] {
      for (std::size_t k = next++; k < cases.size(); k = next++) {
        outcomes[k] = run_case(cases[k], runners);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  bool hung = false;
  for (const Outcome& outcome : outcomes) {
    std::fputs(outcome.text.c_str(), stdout);
    hung = hung || outcome.hung;
  }
  return hung ? 1 : 0;
}

// What a process has sent by sockets goes on after its end, what by handles only if it closes them.
void close_handles() {
#ifdef LEAT_C_H
  for (int number = 3; number < kTranscript; ++number)
    if (leat_description(number, nullptr, 0) > 0) leat_close(number);
#endif
}

int run_side(const std::string& role, const std::string& name) {
  for (const Case& which : all_cases()) {
    if (which.name != name) continue;
    Side side(role == "server" ? Role::kServer : Role::kClient);
    (role == "server" ? which.server : which.client)(side);
    close_handles();
    return 0;
  }
  return 2;
}

// Those of `all` that are named, or that begin with what names none.
Cases choose(const Cases& all, const std::vector<std::string>& names) {
  if (names.empty()) return all;
  Cases chosen;
  for (const Case& which : all) {
    const auto means = [&](const std::string& name) {
      const bool names_one = std::any_of(all.begin(), all.end(),
                                         [&](const Case& other) { return other.name == name; });
      return names_one ? which.name == name : std::string(which.name).rfind(name, 0) == 0;
    };
    if (std::any_of(names.begin(), names.end(), means)) chosen.push_back(which);
  }
  return chosen;
}

int run(const std::vector<std::string>& arguments) {
  Runners runners;
  unsigned jobs = 4;
  bool list = false;
  std::vector<std::string> names;
  for (auto word = arguments.begin(); word != arguments.end(); ++word) {
    const bool has_value = word + 1 != arguments.end();
    if (*word == "--server-runner" && has_value) {
      runners.server = *++word;
    } else if (*word == "--client-runner" && has_value) {
      runners.client = *++word;
    } else if (*word == "--jobs" && has_value) {
      jobs =
          static_cast<unsigned>(std::max(1, std::atoi((++word)->c_str())));  // NOLINT(cert-err34-c)
    } else if (*word == "--list") {
      list = true;
    } else if ((*word)[0] == '-') {
      std::fputs(kHelp, *word == "--help" ? stdout : stderr);
      return *word == "--help" ? 0 : 2;
    } else {
      names.push_back(*word);
    }
  }
  const Cases chosen = choose(all_cases(), names);
  if (chosen.empty()) {
    std::fputs("posix_cases: no case has such a name\n", stderr);
    return 2;
  }
  if (!list) return run_cases(chosen, runners, jobs);
  for (const Case& which : chosen) std::puts(which.name);
  return 0;
}

}  // namespace
}  // namespace posix_cases

int main(int count, char** words) {
  const std::vector<std::string> arguments(words + 1, words + count);
  if (arguments.size() == 3 && arguments[0] == "--side") {
    return posix_cases::run_side(arguments[1], arguments[2]);
  }
  if (arguments.size() == 2 && arguments[0] == posix_cases::kExecuted) {
    return posix_cases::run_executed(arguments[1]);
  }
  return posix_cases::run(arguments);
}
