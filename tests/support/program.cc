#include "support/program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace leat::detail {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(5);

// Allocates nothing, because other threads may have held locks at the fork.
[[noreturn]] void run_child(const std::string& program, const std::vector<char*>& arguments,
                            const std::string& folder, const std::string& out,
                            const std::string& err) {
  const int null = open("/dev/null", O_RDONLY);
  const int out_fd = open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  const int err_fd = open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(null, STDIN_FILENO);
  dup2(out_fd, STDOUT_FILENO);
  dup2(err_fd, STDERR_FILENO);
  if (folder.empty() || chdir(folder.c_str()) == 0) execv(program.c_str(), arguments.data());
  _exit(127);
}

}  // namespace

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

Program::Program(const std::string& path, const std::vector<std::string>& arguments,
                 const std::string& folder) {
  const std::string program =
      path.starts_with('/') ? path : std::string(LEAT_BUILD_FOLDER) + "/" + path;
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const std::string out = streams_.path() + "/out";
  const std::string err = streams_.path() + "/err";
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) run_child(program, pointers, folder, out, err);
}

Program::~Program() {
  if (ended()) return;
  kill();
  waitpid(pid_, nullptr, 0);
}

bool Program::ended() {
  if (pid_ < 0) return true;
  if (waitpid(pid_, &status_, WNOHANG) != pid_) return false;
  pid_ = -1;
  return true;
}

std::string Program::wait_for(const std::string& text) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  for (;;) {
    const bool last_look = ended() || std::chrono::steady_clock::now() > give_up;
    for (const char* stream : {"/out", "/err"}) {
      const std::string printed = read_file(streams_.path() + stream);
      const std::size_t start = printed.find(text);
      const std::size_t end = start == std::string::npos ? start : printed.find('\n', start);
      if (end != std::string::npos) {
        return printed.substr(start + text.size(), end - start - text.size());
      }
    }
    if (last_look) return {};
    std::this_thread::sleep_for(kPollInterval);
  }
}

void Program::kill() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

ProgramResult Program::wait() {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  while (!ended()) {
    if (std::chrono::steady_clock::now() > give_up) kill();
    std::this_thread::sleep_for(kPollInterval);
  }
  return result();
}

ProgramResult Program::result() const {
  return {WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_),
          read_file(streams_.path() + "/out"), read_file(streams_.path() + "/err")};
}

ProgramResult run_program(const std::string& path, const std::vector<std::string>& arguments,
                          const std::string& folder) {
  return Program(path, arguments, folder).wait();
}

std::size_t count_of(const std::string& part, const std::string& text) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

}  // namespace leat::detail
