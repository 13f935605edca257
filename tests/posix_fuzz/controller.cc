#include "controller.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "known_differences.h"
#include "raw.h"
#include "steps.h"

namespace posix_fuzz {
namespace {

void require(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::_Exit(2);
}

Stage* map_stage() {
  const long memory =
      raw_call(SYS_mmap, 0, sizeof(Stage), PROT_READ | PROT_WRITE, MAP_SHARED, kStageNumber, 0);
  require(memory != -1, "mmap");
  return reinterpret_cast<Stage*>(memory);
}

void rest(int microseconds) {
  const timespec time{0, microseconds * 1000L};
  if (microseconds > 0) raw_call(SYS_nanosleep, address_of(&time));
}

// What /proc says of a thread: R, S, T, Z, ...; 0 if it is gone.
char state_of(int pid, int tid) {
  char path[64];
  char text[512] = {};
  std::snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
  const long fd = raw_call(SYS_openat, AT_FDCWD, address_of(path), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  raw_call(SYS_read, fd, address_of(text), sizeof(text) - 1);
  raw_call(SYS_close, fd);
  const char* const end = std::strrchr(text, ')');
  return end != nullptr && end[1] != '\0' ? end[2] : '\0';
}

enum class Presence { kAbsent, kIdle, kPending, kGone };

class Controller {
 public:
  Controller(const Script& script, const Pace& pace) : script_(script), pace_(pace) {}

  std::string run() {
    begin(0);
    begin(1);
    for (std::size_t i = 0; i < script_.size(); ++i) do_step(static_cast<int>(i));
    finish();
    return transcript_;
  }

 private:
  struct Known {
    Presence presence = Presence::kAbsent;
    bool stopped = false;
    int pidfd = -1;
  };

  static Seat& seat_of(int actor) { return process.stage->seats[actor]; }

  void begin(int actor) {
    const pid_t made = fork();
    require(made >= 0, "fork");
    if (made == 0) {
      // Ends with the controller, also where that is killed.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      // As most programs have it; a step can bring the default back.
      signal(SIGPIPE, SIG_IGN);
      raw_call(SYS_close, kOrdersNumber);
      raw_call(SYS_close, kTranscriptsNumber);
      for (const Known& known : known_)
        if (known.pidfd >= 0) raw_call(SYS_close, known.pidfd);
      raw_call(SYS_setpgid, 0, group_);
      act(seat_of(actor));
    }
    if (group_ == 0) group_ = made;
    raw_call(SYS_setpgid, made, group_);
    seat_of(actor).pid = made;
    require(welcome(actor), "an actor that begins");
  }

  // Waits for an actor that a step has made.
  bool welcome(int actor) {
    Seat& seat = seat_of(actor);
    Known& known = known_[actor];
    // Out of the way of the next actor's numbers.
    const long pidfd = raw_call(SYS_pidfd_open, seat.pid.load());
    known.pidfd = static_cast<int>(raw_call(SYS_fcntl, pidfd, F_DUPFD_CLOEXEC, kTranscriptsNumber));
    raw_call(SYS_close, pidfd);
    wait_until([&] { return seat.born != 0 || has_ended(actor); });
    known.presence = seat.born != 0 ? Presence::kIdle : Presence::kGone;
    return seat.born != 0;
  }

  template <typename Condition>
  bool wait_until(Condition condition) {
    for (int waited = 0; waited < pace_.patience_ms;) {
      const std::uint32_t event = process.stage->event;
      if (condition()) return true;
      futex_wait(process.stage->event, event, 1000);
      if (process.stage->event == event) ++waited;
    }
    return condition();
  }

  bool has_ended(int actor) const {
    pollfd polled{known_[actor].pidfd, POLLIN, 0};
    return raw_call(SYS_ppoll, address_of(&polled), 1, address_of(&kNoTime), 0, 8) == 1;
  }

  void say(int number, int actor, const std::string& text) {
    transcript_ += std::to_string(number) + " " + static_cast<char>('A' + actor) + text + "\n";
  }

  void do_step(int number) {
    const Step& step = script_[static_cast<std::size_t>(number)];
    const int actor = step.actor;
    Known& known = known_[actor];
    const Operation& operation = operations()[static_cast<std::size_t>(step.operation)];
    if (known.presence == Presence::kAbsent || known.presence == Presence::kGone) {
      say(number, actor, " absent");
      return;
    }
    if (operation.run == nullptr) {
      control(number, actor, operation.name);
    } else if (known.presence == Presence::kPending || known.stopped) {
      say(number, actor, known.stopped ? " stopped" : " busy");
      return;
    } else if (is_left_full(operation.name)) {
      say(number, actor, " not with a full connection");
      return;
    } else {
      if (is_urgent(operation.name, step) && somebody_sleeps()) {
        say(number, actor, " not while somebody sleeps");
        return;
      }
      if (std::strcmp(operation.name, "pump") == 0 && !receive_for(number, step)) {
        say(number, actor, " not received");
        return;
      }
      order(number, step);
    }
    rest(is_unseen_end(operation.name, step) ? std::max(pace_.rest_us, kUnseenEndUs)
                                             : pace_.rest_us);
    for (int other = 0; other < kActors; ++other) {
      if (other != actor && known_[other].presence == Presence::kPending && !known_[other].stopped)
        await(number, other, pace_.looks_at_old);
    }
    // A step that is done to an actor may end what it waits for.
    if (operation.run == nullptr && known.presence == Presence::kPending && !known.stopped)
      await(number, actor, pace_.looks_at_old);
  }

  // Rule urgent: whatever the author believes.
  bool somebody_sleeps() const {
    return std::any_of(std::begin(known_), std::end(known_),
                       [](const Known& one) { return one.presence == Presence::kPending; });
  }
  static bool is_urgent(const char* name, const Step& step) {
    return std::strcmp(name, "put") == 0 && (step.arguments[3] & MSG_OOB) != 0;
  }

  // Rule filled: nobody has received what the last "fill" sent, and this is not part of that.
  static bool is_left_full(const char* name) {
    return process.stage->filled != 0 && std::strcmp(name, "poll") != 0 &&
           std::strcmp(name, "empty") != 0;
  }

  // The other end of a pump works at the same time. False: it cannot (rule received_by_none).
  bool receive_for(int number, const Step& step) {
    const int other = step.arguments[1];
    if (other == step.actor || known_[other].presence != Presence::kIdle || known_[other].stopped)
      return false;
    Step receiving = step;
    receiving.actor = other;
    begin_order(number, receiving, true);
    return true;
  }

  void begin_order(int number, const Step& step, bool receives) {
    Seat& seat = seat_of(step.actor);
    seat.step = step;
    seat.number = number;
    seat.length = 0;
    seat.receives = receives;
    seat.executed = false;
    seat.order.fetch_add(1);
    futex_wake(seat.order);
    known_[step.actor].presence = Presence::kPending;
  }

  void order(int number, const Step& step) {
    begin_order(number, step, false);
    await(number, step.actor, pace_.looks_at_new);
    if (known_[step.actor].presence == Presence::kPending) say(number, step.actor, " asleep");
    leave_threads(number, step);
    for (int other = 0; other < kActors; ++other) {
      if (known_[other].presence == Presence::kAbsent && seat_of(other).expected != 0 &&
          !welcome(other))
        say(number, other, " never came");
    }
    find_ended(number);
  }

  static bool executes(const Step& step) {
    return std::strcmp(operations()[static_cast<std::size_t>(step.operation)].name, "exec") == 0;
  }

  // Of the threads, exec leaves one.
  void leave_threads(int number, const Step& step) {
    if (!executes(step) || known_[step.actor].presence != Presence::kIdle ||
        !seat_of(step.actor).executed)
      return;
    for (int other = 0; other < kActors; ++other) {
      const Presence presence = known_[other].presence;
      if (other != step.actor && seat_of(other).pid == seat_of(step.actor).pid &&
          (presence == Presence::kIdle || presence == Presence::kPending))
        gone(number, other, " thread ended");
    }
  }

  // Until the order is done, the actor has ended, or has been seen asleep so often.
  void await(int number, int actor, int looks) {
    Seat& seat = seat_of(actor);
    int asleep = 0;
    int lost = 0;
    int waited = 0;
    while (waited < pace_.patience_ms && asleep < looks) {
      const std::uint32_t event = process.stage->event;
      if (seat.answered == seat.order) {
        known_[actor].presence = Presence::kIdle;
        say(number, actor, std::string(seat.text, seat.length));
        return;
      }
      futex_wait(process.stage->event, event, 1000);
      if (process.stage->event != event) continue;
      ++waited;
      char state = state_of(seat.pid, seat.tid);
      // Whichever thread executes another program gets the id of the first.
      if (state == 0 && executes(seat.step)) state = state_of(seat.pid, seat.pid);
      // The threads of a process that dies go one after the other, the process after them.
      if (state == 0 && !has_ended(actor) && ++lost < looks) continue;
      if (has_ended(actor) || state == 0) {
        find_ended(number);
        // A thread alone.
        if (known_[actor].presence == Presence::kPending) gone(number, actor, " thread ended");
        return;
      }
      asleep = state == 'S' ? asleep + 1 : 0;
    }
    // Nothing more is asked of it, or every step would wait as long.
    if (asleep < looks) gone(number, actor, " HUNG");
  }

  void gone(int number, int actor, const std::string& how) {
    known_[actor].presence = Presence::kGone;
    say(number, actor, how);
  }

  // Marks the actors of a process that has ended.
  void find_ended(int number) {
    for (int actor = 0; actor < kActors; ++actor) {
      const Presence presence = known_[actor].presence;
      if (presence != Presence::kIdle && presence != Presence::kPending) continue;
      if (has_ended(actor))
        gone(number, actor, how_ended(actor));
      else if (presence == Presence::kIdle && state_of(seat_of(actor).pid, seat_of(actor).tid) == 0)
        gone(number, actor, " thread ended");
    }
  }

  std::string how_ended(int actor) const {
    siginfo_t about{};
    if (raw_call(SYS_waitid, P_PIDFD, known_[actor].pidfd, address_of(&about),
                 WEXITED | WNOHANG | WNOWAIT, 0) != 0)
      return " ended";
    return (about.si_code == CLD_EXITED ? " exit " : " killed by ") +
           std::to_string(about.si_status);
  }

  void control(int number, int actor, const std::string& name) {
    Seat& seat = seat_of(actor);
    const int pid = seat.pid;
    if (name == "kill") {
      raw_call(SYS_kill, pid, SIGKILL);
      wait_until([&] { return has_ended(actor); });
      find_ended(number);
    } else if (name == "stop") {
      raw_call(SYS_kill, pid, SIGSTOP);
      wait_until([&] { return state_of(pid, seat.tid) == 'T' || has_ended(actor); });
      set_stopped(pid, true);
      say(number, actor, " stop");
    } else if (name == "continue") {
      raw_call(SYS_kill, pid, SIGCONT);
      wait_until([&] { return state_of(pid, seat.tid) != 'T'; });
      set_stopped(pid, false);
      say(number, actor, " continue");
    } else {
      signal_to(number, actor);
    }
  }

  void set_stopped(int pid, bool stopped) {
    for (int actor = 0; actor < kActors; ++actor)
      if (seat_of(actor).pid == pid) known_[actor].stopped = stopped;
  }

  void signal_to(int number, int actor) {
    Seat& seat = seat_of(actor);
    if (known_[actor].stopped) return;
    const bool idle = known_[actor].presence == Presence::kIdle;
    const std::uint32_t handled = seat.handled;
    if (idle) seat.length = 0;
    raw_call(SYS_tgkill, seat.pid.load(), seat.tid.load(), SIGUSR1);
    const bool came = wait_until([&] { return seat.handled != handled || has_ended(actor); });
    if (has_ended(actor)) return find_ended(number);
    say(number, actor,
        came ? (idle ? std::string(seat.text, seat.length) : " [signal]") : " HUNG in its handler");
  }

  void finish() {
    raw_call(SYS_kill, -group_, SIGKILL);
    while (raw_call(SYS_wait4, -1, 0, 0, 0) > 0 || errno == EINTR) {
    }
    for (const Known& known : known_)
      if (known.pidfd >= 0) raw_call(SYS_close, known.pidfd);
  }

  static constexpr timespec kNoTime{0, 0};
  const Script& script_;
  const Pace& pace_;
  pid_t group_ = 0;
  Known known_[kActors];
  std::string transcript_;
};

void clear_stage(unsigned tag) {
  Stage& stage = *new (process.stage) Stage{};
  stage.controller = static_cast<int>(raw_call(SYS_getpid));
  // 127.x.y.z: ports of scripts that ended just now are not in the way of others.
  stage.host = 0x7f000000U | ((tag % 0xf00000U) + 0x020101U);
  for (int& fd : process.slots) fd = -1;
}

}  // namespace

void prepare_stage() {
  // Enough for a script, and above kStageNumber; the same numbers on any machine.
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
  require(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const long memory = raw_call(SYS_memfd_create, address_of("stage"), 0);
  require(memory >= 0 && raw_call(SYS_ftruncate, memory, sizeof(Stage)) == 0, "memfd_create");
  require(raw_call(SYS_dup3, memory, kStageNumber, 0) >= 0, "dup3");
  raw_call(SYS_close, memory);
  require(raw_call(SYS_dup3, 0, kOrdersNumber, O_CLOEXEC) >= 0, "dup3");
  require(raw_call(SYS_dup3, 1, kTranscriptsNumber, O_CLOEXEC) >= 0, "dup3");
  const long nothing = raw_call(SYS_openat, AT_FDCWD, address_of("/dev/null"), O_RDWR);
  raw_call(SYS_dup3, nothing, 0, 0);
  raw_call(SYS_dup3, nothing, 1, 0);
  // Also what a shell has left open.
  raw_call(SYS_close_range, STDERR_FILENO + 1, kStageNumber - 1, 0);
  process.stage = map_stage();
}

void act_after_exec(int number) {
  process.stage = map_stage();
  Seat& mine = process.stage->seats[number];
  std::memcpy(process.slots, mine.slots, sizeof(process.slots));
  // A program that goes on in its process answers the order to do so.
  if (mine.born != 0) {
    mine.length = 0;
    mine.executed = true;
    mine.tid = static_cast<int>(raw_call(SYS_gettid));
    Call(mine).say(" executed");
    mine.answered = mine.order.load();
  }
  act(mine);
}

std::string run_script(const Script& script, const Pace& pace, unsigned tag) {
  clear_stage(tag);
  process.stage->patient = pace.rest_us != 0;
  return Controller(script, pace).run();
}

}  // namespace posix_fuzz
