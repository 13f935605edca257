#include "stagehand.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "raw.h"
#include "stage.h"

namespace posix_fuzz {
namespace {

// A script has some dozens of steps, each of which hangs for seconds at most.
constexpr int kPatienceMs = 300'000;

struct Head {
  std::uint32_t bytes = 0;
  std::uint32_t patient = 0;
  std::uint32_t tag = 0;
};

bool read_all(int fd, void* where, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const long got = raw_call(SYS_read, fd, address_of(static_cast<char*>(where) + done),
                              static_cast<long>(bytes - done));
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

bool write_all(int fd, const void* from, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const long put = raw_call(SYS_write, fd, address_of(static_cast<const char*>(from) + done),
                              static_cast<long>(bytes - done));
    if (put <= 0) return false;
    done += static_cast<std::size_t>(put);
  }
  return true;
}

bool write_text(int fd, const Order& order, const std::string& text) {
  const Head head{static_cast<std::uint32_t>(text.size()), order.patient ? 1U : 0U, order.tag};
  return write_all(fd, &head, sizeof(head)) && write_all(fd, text.data(), text.size());
}

bool read_text(int fd, Order& order, std::string& text) {
  Head head;
  if (!read_all(fd, &head, sizeof(head))) return false;
  order = {head.patient != 0, head.tag};
  text.resize(head.bytes);
  return read_all(fd, text.data(), text.size());
}

}  // namespace

void Stagehand::begin() {
  std::vector<std::string> command;
  std::istringstream stream(runner_);
  for (std::string word; stream >> word;) command.push_back(word);
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof(self) - 1) <= 0)
    throw std::runtime_error("/proc/self/exe cannot be read");
  command.insert(command.end(), {self, "--stagehand"});
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  int orders[2];
  int transcripts[2];
  if (pipe2(orders, O_CLOEXEC) != 0 || pipe2(transcripts, O_CLOEXEC) != 0)
    throw std::runtime_error("no pipes");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, orders[0], 0);
  posix_spawn_file_actions_adddup2(&actions, transcripts[1], 1);
  if (!shows_) posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  const int failed =
      posix_spawnp(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(orders[0]);
  close(transcripts[1]);
  orders_ = orders[1];
  transcripts_ = transcripts[0];
  if (failed != 0) throw std::runtime_error(command[0] + " cannot be started");
}

void Stagehand::end() {
  if (pid_ < 0) return;
  close(orders_);
  close(transcripts_);
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void Stagehand::give(const Script& script, bool patient) {
  if (pid_ < 0) begin();
  // Where it has died, transcript() says so.
  static_cast<void>(write_text(orders_, {patient, scripts_++}, to_text(script)));
}

std::string Stagehand::transcript() {
  Order order;
  std::string text;
  pollfd polled{transcripts_, POLLIN, 0};
  if (poll(&polled, 1, kPatienceMs) == 1 && read_text(transcripts_, order, text)) return text;
  end();
  return "the process that runs the scripts has died or hangs\n";
}

void work_as_stagehand() {
  prepare_stage();
  Order order;
  std::string text;
  while (read_text(kOrdersNumber, order, text)) {
    const std::string transcript =
        run_script(parse_script(text), order.patient ? kPatient : kFast, order.tag);
    if (!write_text(kTranscriptsNumber, order, transcript)) break;
  }
  std::_Exit(0);
}

}  // namespace posix_fuzz
