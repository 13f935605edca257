#include "preload/inheritance.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "preload/configuration.h"
#include "preload/epoll_set.h"
#include "preload/hidden.h"
#include "preload/inherited.h"
#include "preload/meeting.h"
#include "preload/program_file.h"
#include "preload/real.h"
#include "preload/socket_facts.h"
#include "preload/undisturbed.h"

namespace leat::preload {
namespace {

using ActionKind = SpawnAction::Kind;

// What is opened there only to keep a number in use.
char nothing_there[] = "/dev/null";

// A look without a reference, which costs more than all else here and most descriptors do not need:
// a caller that takes one looks again, so relaxed.
bool may_be_passed(int fd) {
  const Object* object = descriptor_entry(fd).load(std::memory_order_acquire);
  if (object == nullptr) return false;
  const Kind kind = object->kind.load(std::memory_order_relaxed);
  return kind == Kind::kConnection || kind == Kind::kListener || kind == Kind::kSocket ||
         kind == Kind::kEpoll;
}

bool preloads_us(char* const* environment) {
  bool does = false;
  for (char* const* one = environment; one != nullptr && *one != nullptr; ++one) {
    const std::string_view variable(*one);
    // Of several the dynamic linker takes the last.
    if (variable.starts_with("LD_PRELOAD="))
      does = variable.find("libleat_preload") != std::string_view::npos;
  }
  return does;
}

bool is_ours(const char* variable) {
  return std::strncmp(variable, kInheritedVariable, sizeof(kInheritedVariable) - 1) == 0;
}

void set_close_on_exec(int fd, bool closes) {
  system_call(SYS_fcntl, fd, F_SETFD, closes ? static_cast<long>(FD_CLOEXEC) : 0L);
}

// The bound that the C library sets for the numbers of actions; and the highest that this process
// can make it.
struct EndOfNumbers {
  int now;
  int most;
};

EndOfNumbers end_of_numbers() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto end = [](rlim_t numbers) {
    return static_cast<int>(std::min<rlim_t>(numbers, kMostDescriptors));
  };
  return {end(limit.rlim_cur), end(limit.rlim_max)};
}

// Puts something there that fails every use with EBADF but keeps the number, so that no file of the
// executed program comes to be its standard output. Returns a copy of what was there; -1: nothing
// was changed.
int stand_in(int fd) {
  const long copy = system_call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3L);
  if (copy < 0) return -1;
  const long nothing = system_call(SYS_openat, AT_FDCWD, nothing_there, O_PATH | O_CLOEXEC, 0);
  const bool good = nothing >= 0 && system_call(SYS_dup3, nothing, fd, 0) == fd;
  if (nothing >= 0) system_call(SYS_close, nothing);
  if (!good) system_call(SYS_close, copy);
  return good ? static_cast<int>(copy) : -1;
}

}  // namespace

Inheritance::Inheritance(const char* path, char* const* environment) noexcept
    : Inheritance(Call::kExec, path, environment, nullptr) {}

Inheritance::Inheritance(const char* path, char* const* environment,
                         const posix_spawn_file_actions_t* actions) noexcept
    : Inheritance(Call::kSpawn, path, environment, actions) {}

Inheritance::Inheritance(Call call, const char* path, char* const* environment,
                         const posix_spawn_file_actions_t* actions) noexcept
    : environment_(environment), actions_(actions) {
  const Undisturbed undisturbed;
  const SpawnActions wanted(actions);
  if (!collect(call, wanted)) {
    error_ = ENOMEM;
    return;
  }
  if (heirs_.size() == 0) return;
  apply(wanted);
  settle();
  if (heirs_.size() == 0) return;
  const char* why = path != nullptr ? obstacle(path) : nullptr;
  if (why == nullptr && !preloads_us(environment)) why = "runs without leat-run's LD_PRELOAD";
  const bool acts = call == Call::kSpawn && wanted.known();
  // Without actions of our own it could only inherit what every other child of this process
  // inherits meanwhile.
  if (why == nullptr && call == Call::kSpawn && !acts)
    why = "is started with file actions that leat-run has not seen";
  for (Heir& heir : heirs_) {
    // A set may stay: what is carried of it leaves it.
    if (why != nullptr && heir.object.is(Kind::kEpoll)) heir.fd = -1;
    heir.refused = heir.fd >= 0 && why != nullptr;
  }
  if (!choose_passed()) {
    error_ = ENOMEM;
    return;
  }
  if (acts && copy_unnameable()) choose_numbers(wanted);
  if (!write_environment(environment)) {
    error_ = ENOMEM;
    return;
  }
  if (acts) {
    error_ = add_actions(wanted);
  } else {
    change_here(call);
  }
  // A file that cannot be executed is not reported. And nothing is reported earlier, because
  // standard error may have been one of the descriptors.
  if (path == nullptr || access(path, X_OK) == 0)
    report(path, why != nullptr ? why : "finds no number free for its memory");
}

Inheritance::~Inheritance() {
  const Undisturbed undisturbed;
  drop_passed();
  for (const Heir& heir : heirs_) {
    if (heir.marked) set_close_on_exec(heir.from, false);
    if (heir.stood_in < 0) continue;
    system_call(SYS_dup3, heir.stood_in, heir.from, 0);
    system_call(SYS_close, heir.stood_in);
  }
  if (actions_ == &own_actions_) real().posix_spawn_file_actions_destroy(&own_actions_);
}

void Inheritance::drop_passed() noexcept {
  for (const Passed& one : passed_) {
    if (one.opened) set_close_on_exec(one.hidden, true);
    if (one.number != one.hidden) system_call(SYS_close, one.number);
    if (one.told.kind == 's') close_hidden(one.hidden);
  }
  passed_.clear();
}

// Collects what the child may get. False: memory has run out.
bool Inheritance::collect(Call call, const SpawnActions& actions) noexcept {
  const int last = highest_known();
  std::size_t count = 0;
  for (int fd = 0; fd <= last; ++fd) count += may_be_passed(fd) ? 1 : 0;
  if (count == 0) return true;
  if (!heirs_.reserve(count + actions.size())) return false;
  for (int fd = 0; fd <= last && count > 0; ++fd) {
    if (!may_be_passed(fd)) continue;
    const long flags = system_call(SYS_fcntl, fd, F_GETFD, 0L);
    const bool closes = (flags & FD_CLOEXEC) != 0;
    if (flags < 0 || (closes && (call == Call::kExec || !actions.duplicates(fd)))) continue;
    Reference object = find_current(fd);
    if (!object || object.is(Kind::kOwn)) continue;
    heirs_.push(fd, fd, closes, false, false, -1, std::move(object));
    --count;
  }
  return true;
}

// Applies the program's actions to that.
void Inheritance::apply(const SpawnActions& actions) noexcept {
  const auto close = [&](int first, int last) {
    for (Heir& heir : heirs_)
      if (heir.fd >= first && heir.fd <= last) heir.fd = -1;
  };
  for (const SpawnAction& action : actions) {
    if (action.kind == ActionKind::kClose || action.kind == ActionKind::kOpen)
      close(action.fd, action.fd);
    if (action.kind == ActionKind::kCloseFrom) close(action.fd, kMostDescriptors);
    if (action.kind != ActionKind::kDup2) continue;
    Heir* source = std::find_if(heirs_.begin(), heirs_.end(),
                                [&](const Heir& heir) { return heir.fd == action.fd; });
    if (action.fd == action.to) {
      if (source != heirs_.end()) source->closes_on_exec = false;
      continue;
    }
    close(action.to, action.to);
    if (source == heirs_.end() || heirs_.room() == 0) continue;
    source->object->references.fetch_add(1, std::memory_order_relaxed);  // we hold one
    heirs_.push(source->from, action.to, false, false, false, -1, Reference(source->object.get()));
  }
  for (Heir& heir : heirs_)
    if (heir.closes_on_exec) heir.fd = -1;
}

// Finds those that are ours: a socket that is not decided yet may become TCP's.
void Inheritance::settle() noexcept {
  bool any = false;
  for (Heir& heir : heirs_) {
    if (heir.fd >= 0 && heir.object.is_undecided()) decide_now(heir.from, heir.object);
    if (heir.object.is(Kind::kSocket) || heir.object.is(Kind::kFree)) heir.fd = -1;
    any |= heir.fd >= 0;
  }
  if (!any) heirs_.clear();
}

bool Inheritance::choose_passed() noexcept {
  // Each with the state of its end, which comes first.
  if (!passed_.reserve(2 * heirs_.size())) return false;
  for (const Heir& heir : heirs_) {
    if (heir.fd < 0 || heir.refused || !heir.object.is(Kind::kConnection)) continue;
    const int ends = memfd_of(heir.object->connection.end());
    const auto has_it = [ends](const Passed& one) { return one.hidden == ends; };
    if (!is_hidden(ends) || std::any_of(passed_.begin(), passed_.end(), has_it)) continue;
    passed_.push(nullptr, ends, ends, Inherited{.kind = 'e', .hidden = ends}, false);
  }
  for (const Heir& heir : heirs_) {
    if (heir.fd < 0 || !heir.object.is(Kind::kEpoll)) continue;
    const int told = heir.object->set->tell();
    if (told < 0 && heir.object->set->unused()) continue;
    if (told < 0) return false;  // it would hear marks
    const auto number = static_cast<unsigned>(heir.fd);
    passed_.push(nullptr, told, told,
                 Inherited{.kind = 's',
                           .cookie = reinterpret_cast<std::uintptr_t>(heir.object.get()),
                           .hidden = told,
                           .detail = number},
                 false);
  }
  for (Heir& heir : heirs_) {
    if (heir.fd < 0 || heir.refused || heir.object.is(Kind::kEpoll)) continue;
    Object& object = *heir.object;
    const bool has_another =
        heir.fd != heir.from || object.numbers.load(std::memory_order_relaxed) > 1;
    const auto is_its = [&](const Passed& one) { return one.object == &object; };
    if (has_another && std::any_of(passed_.begin(), passed_.end(), is_its)) continue;
    const bool connection = heir.object.is(Kind::kConnection);
    const int hidden = connection ? object.connection.memfd() : object.meeting_fd;
    if (!is_hidden(hidden)) {
      heir.refused = true;
      continue;
    }
    object.made_at = 0;
    const Inherited told{.kind = connection ? 'c' : 'l',
                         .cookie = cookie_of(heir.from),
                         .hidden = hidden,
                         .detail = connection ? object.connection.side() : object.code,
                         .owner = object.owner,
                         .port = object.port};
    passed_.push(&object, hidden, hidden, told, false);
  }
  return true;
}

void Inheritance::refuse_all() noexcept {
  for (Heir& heir : heirs_) heir.refused = heir.fd >= 0;
  drop_passed();
}

// No action can name a number beyond the hard limit, which the program has lowered since. So a copy
// of what lies there, among the program's numbers, is passed. False: no number is free for
// the copy, and nothing is passed.
bool Inheritance::copy_unnameable() noexcept {
  const EndOfNumbers end = end_of_numbers();
  for (Passed& one : passed_) {
    if (one.hidden < end.most) continue;
    const long copy = system_call(SYS_fcntl, one.hidden, F_DUPFD_CLOEXEC, end.now / 2L);
    if (copy < 0) {
      refuse_all();
      return false;
    }
    one.number = static_cast<int>(copy);
    one.told.hidden = one.number;
    one.told.in_sight = 1;
  }
  return true;
}

// Descriptors of ours that the actions close or replace must lie elsewhere in the child: above
// every number that the program names.
void Inheritance::choose_numbers(const SpawnActions& actions) noexcept {
  const auto replaces_ours = [&](const SpawnAction& action) {
    const int number = action.kind == ActionKind::kDup2 ? action.to : action.fd;
    return action.kind != ActionKind::kClose &&
           std::any_of(passed_.begin(), passed_.end(),
                       [&](const Passed& one) { return one.number == number; });
  };
  bool any = false;
  int first = 0;
  for (const SpawnAction& action : actions) {
    any |= action.kind == ActionKind::kCloseFrom || replaces_ours(action);
    first = std::max({first, action.fd + 1, action.to + 1});
  }
  if (!any || passed_.size() == 0) return;
  const auto count = static_cast<int>(passed_.size());
  const auto lies_there = [&](const Passed& one) {
    return one.number >= first && one.number < first + count;
  };
  if (std::any_of(passed_.begin(), passed_.end(), lies_there)) first = highest_known() + 1;
  if (first + count > end_of_numbers().now) return refuse_all();
  first_number_ = first;
  for (Passed& one : passed_) {
    one.told.hidden = first++;
    one.told.in_sight = 1;
  }
}

bool Inheritance::write_environment(char* const* environment) noexcept {
  std::size_t variables = 0;
  while (environment != nullptr && environment[variables] != nullptr) ++variables;
  const std::size_t bytes = passed_.size() * kMostInheritedText;
  const std::size_t parts = bytes == 0 ? 0 : bytes / (kMostVariable - kMostInheritedText) + 1;
  if (!pointers_.reserve(variables + parts + 1) ||
      !text_.reserve(bytes + parts * (sizeof(kInheritedVariable) + 1)))
    return false;
  for (std::size_t i = 0; i < variables; ++i)
    if (!is_ours(environment[i])) pointers_.push(environment[i]);
  std::size_t begun = 0;
  for (const Passed& one : passed_) {
    if (begun == text_.size()) {
      pointers_.push(text_.end());
      for (const char* c = kInheritedVariable; *c != '\0'; ++c) text_.push(*c);
    }
    char entry[kMostInheritedText];
    const std::size_t length = write_inherited(one.told, entry);
    for (std::size_t i = 0; i < length; ++i) text_.push(entry[i]);
    if (text_.size() - begun < kMostVariable - kMostInheritedText && &one + 1 != passed_.end())
      continue;
    text_.push('\0');
    begun = text_.size();
  }
  pointers_.push(nullptr);
  environment_ = pointers_.data();
  return true;
}

// For a program in place of this one, or a child that gets a copy of what is open here.
void Inheritance::change_here(Call call) noexcept {
  for (Passed& one : passed_) {
    set_close_on_exec(one.hidden, false);
    one.opened = true;
  }
  for (Heir& heir : heirs_) {
    if (!heir.refused) continue;
    // Other threads go on after posix_spawn().
    if (call == Call::kExec && heir.fd <= STDERR_FILENO) heir.stood_in = stand_in(heir.fd);
    if (heir.stood_in >= 0) continue;
    set_close_on_exec(heir.from, true);
    heir.marked = true;
  }
  // A child that shares the caller's memory until it executes never gives them back.
  if (call == Call::kExec)
    for (Heir& heir : heirs_) heir.object = Reference();
}

// The same in the child alone, so that no other child that is started now gets anything. The C
// library lets actions name numbers below the soft limit only, beyond which most of ours lie, but
// looks at the limit when they are added; the child, to which the limit does not matter, has that
// of the program again.
int Inheritance::add_actions(const SpawnActions& actions) noexcept {
  int error = real().posix_spawn_file_actions_init(&own_actions_);
  if (error != 0) return error;
  actions_ = &own_actions_;
  const int end = end_of_numbers().now;
  std::optional<SpareNumbers> raised;
  if (std::any_of(passed_.begin(), passed_.end(),
                  [end](const Passed& one) { return one.number >= end; }))
    raised.emplace();
  if (first_number_ >= 0) {
    for (const Passed& one : passed_)
      if (error == 0)
        error = add_spawn_action(own_actions_, {ActionKind::kDup2, one.number, one.told.hidden});
  }
  for (const SpawnAction& action : actions)
    if (error == 0) error = add_action(action);
  for (const Passed& one : passed_) {
    if (error != 0 || first_number_ >= 0) break;
    error = add_spawn_action(own_actions_, {ActionKind::kDup2, one.number, one.number});
  }
  for (const Heir& heir : heirs_) {
    if (!heir.refused || error != 0) continue;
    const bool keeps_number = heir.fd <= STDERR_FILENO && access(nothing_there, F_OK) == 0;
    const auto kind = keeps_number ? ActionKind::kOpen : ActionKind::kClose;
    error = add_spawn_action(own_actions_, {kind, heir.fd, -1, nothing_there, O_PATH, 0});
  }
  return error;
}

// One of the program's.
int Inheritance::add_action(const SpawnAction& action) noexcept {
  if (passed_.size() == 0) return add_spawn_action(own_actions_, action);
  if (action.kind == ActionKind::kCloseFrom) return close_all_from(action.fd);
  const auto closed = [&](const Passed& one) { return one.told.hidden == action.fd; };
  // Programs close what they cannot know.
  if (action.kind == ActionKind::kClose && std::any_of(passed_.begin(), passed_.end(), closed))
    return 0;
  return add_spawn_action(own_actions_, action);
}

// But what is passed.
int Inheritance::close_all_from(int first) noexcept {
  int error = 0;
  for (int fd = first; fd < first_number_ && error == 0; ++fd)
    error = add_spawn_action(own_actions_, {ActionKind::kClose, fd});
  if (error != 0) return error;
  const int behind = first_number_ + static_cast<int>(passed_.size());
  return add_spawn_action(own_actions_, {ActionKind::kCloseFrom, behind});
}

bool Inheritance::would_pass() noexcept {
  for (int fd = 0; fd <= highest_known(); ++fd)
    if (may_be_passed(fd)) return true;
  return false;
}

void Inheritance::report(const char* path, const char* why) const noexcept {
  int first = -1;
  int others = -1;
  for (const Heir& heir : heirs_) {
    if (!heir.refused) continue;
    if (first < 0 || heir.fd < first) first = heir.fd;
    ++others;
  }
  if (first < 0) return;
  char more[32] = "";
  if (others > 0) snprintf(more, sizeof(more), " (and %d more)", others);
  log(Level::kError,
      "descriptor %d%s is a carried connection or its listener and not passed on: %s %s", first,
      more, path != nullptr ? path : "a program", why);
}

}  // namespace leat::preload
