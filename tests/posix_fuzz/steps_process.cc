// Threads, processes and signals.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "steps.h"

namespace posix_fuzz {

enum SpawnWay { kSpawn, kForkExec, kVforkExec };
const Words kSpawnWays = {
    {"posix_spawn", kSpawn}, {"fork_exec", kForkExec}, {"vfork_exec", kVforkExec}};
enum ExitWay { kExitAtOnce, kExitInOrder, kExitThread };
const Words kExitWays = {{"_exit", kExitAtOnce}, {"exit", kExitInOrder}, {"thread", kExitThread}};
enum HandlerAction { kDefault, kIgnore, kNothing, kHandlerGets, kHandlerPuts, kHandlerCloses };
const Words kHandlerActions = {{"default", kDefault}, {"ignore", kIgnore},
                               {"nothing", kNothing}, {"get", kHandlerGets},
                               {"put", kHandlerPuts}, {"close", kHandlerCloses}};
const Words kSignals = {{"USR1", SIGUSR1}, {"PIPE", SIGPIPE}};

namespace {

// What the process does at SIGUSR1.
volatile sig_atomic_t handler_action = kNothing;
volatile sig_atomic_t handler_slot = 0;

void handle(int) {
  const int kept_errno = errno;
  const int fd = process.slots[handler_slot];
  char bytes[20] = "within the handler.";
  Call call(*seat);
  call.say(" [handler");
  switch (handler_action) {
    case kHandlerGets: {
      const long got = call.result(recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT));
      call.data(bytes, got);
      break;
    }
    case kHandlerPuts:
      call.result(send(fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL));
      break;
    case kHandlerCloses:
      call.result(close(fd));
      break;
    default:
      break;
  }
  call.say("]");
  seat->handled.fetch_add(1);
  announce(*process.stage);
  errno = kept_errno;
}

// Signal, what to do, to which slot, and whether calls go on.
void run_handle(Call& call) {
  const int signal = call.argument(0);
  const int action = call.argument(1);
  struct sigaction how {};
  how.sa_handler = action == kDefault ? SIG_DFL : (action == kIgnore ? SIG_IGN : handle);
  how.sa_flags = call.argument(3) != 0 ? SA_RESTART : 0;
  handler_action = action;
  handler_slot = call.argument(2);
  call.result(sigaction(signal, &how, nullptr));
}

Seat& new_seat(const Call& call, std::size_t index) {
  return call.stage().seats[call.argument(index)];
}

// False: the seat is taken, the script says nonsense.
bool is_free(const Seat& chosen) { return chosen.expected == 0 && chosen.born == 0; }

void run_fork(Call& call) {
  Seat& child = new_seat(call, 0);
  if (!is_free(child)) return;
  const pid_t made = fork();
  if (made == 0) act(child);
  if (made > 0) {
    child.pid = made;
    child.expected = 1;
  }
  call.result(made > 0 ? 0 : made);
}

std::string letter_of(const Seat& chosen) { return std::to_string(&chosen - process.stage->seats); }

// Another program with the same descriptors, but for those that it does not get.
void run_spawn(Call& call) {
  Seat& child = new_seat(call, 0);
  if (!is_free(child)) return;
  std::memcpy(child.slots, process.slots, sizeof(child.slots));
  std::string option = "--actor";
  std::string letter = letter_of(child);
  std::string name = "posix_fuzz";
  char* const arguments[] = {name.data(), option.data(), letter.data(), nullptr};
  const char* const self = "/proc/self/exe";
  pid_t made = -1;
  switch (call.argument(1)) {
    case kSpawn:
      errno = posix_spawn(&made, self, nullptr, nullptr, arguments, environ);
      break;
    case kForkExec:
      made = fork();
      if (made == 0) {
        execv(self, arguments);
        _exit(127);
      }
      break;
    default:
      made = vfork();
      if (made == 0) {
        execve(self, arguments, environ);
        _exit(127);
      }
  }
  if (made > 0) {
    child.pid = made;
    child.expected = 1;
  }
  call.result(made > 0 ? 0 : made);
}

// The same process goes on as another program, which answers.
void run_exec(Call& call) {
  std::memcpy(call.seat().slots, process.slots, sizeof(process.slots));
  const std::string letter = letter_of(call.seat());
  call.result(execl("/proc/self/exe", "posix_fuzz", "--actor", letter.c_str(), nullptr));
}

void* begin_thread(void* chosen) { act(*static_cast<Seat*>(chosen)); }

void run_thread(Call& call) {
  Seat& chosen = new_seat(call, 0);
  if (!is_free(chosen)) return;
  chosen.pid = call.seat().pid.load();
  chosen.expected = 1;
  pthread_t thread{};
  errno = pthread_create(&thread, nullptr, begin_thread, &chosen);
  call.result(errno == 0 ? 0 : -1);
  if (errno == 0) pthread_detach(thread);
}

void run_exit(Call& call) {
  switch (call.argument(0)) {
    case kExitAtOnce:
      _exit(3);
    case kExitInOrder:
      exit(4);  // NOLINT(concurrency-mt-unsafe)
    default:
      pthread_exit(nullptr);
  }
}

void run_wait(Call& call) {
  int status = 0;
  const pid_t ended = waitpid(-1, &status, 0);
  call.result(ended > 0 ? 0 : ended);
  if (ended > 0) call.say(" status %x", static_cast<unsigned>(status));
}

}  // namespace

std::vector<Operation> process_operations() {
  return {
      {"fork", {actor()}, run_fork},
      {"spawn", {actor(), word(kSpawnWays)}, run_spawn},
      {"exec", {}, run_exec},
      {"thread", {actor()}, run_thread},
      {"exit", {word(kExitWays)}, run_exit},
      {"wait", {}, run_wait},
      {"handle", {word(kSignals), word(kHandlerActions), slot(), number()}, run_handle},
      // To the actor, from outside.
      {"signal", {}, nullptr},
      {"kill", {}, nullptr},
      {"stop", {}, nullptr},
      {"continue", {}, nullptr},
  };
}

}  // namespace posix_fuzz
