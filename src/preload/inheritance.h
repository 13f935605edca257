// Connections and listeners that a program passes to one that it executes.
//
// The memory of a connection is a hidden descriptor, which is closed on exec unless it is passed
// on. A child gets that of exactly those connections whose descriptors it gets, and none if it will
// not load this library: it would find a kernel socket there that carries nothing, and hang. So
// such a child does not get these descriptors either, and a line in the log says so.
#pragma once

#include <spawn.h>

#include "preload/descriptors.h"
#include "preload/inherited.h"
#include "preload/mapped_array.h"
#include "preload/spawn_actions.h"

#include "preload/end_state.h"

namespace leat::preload {

// What a program about to be executed gets of ours. Once it lives, the caller executes with
// environment() and, where that has any, actions(); when it ends, all is as before, so that nothing
// is lost if that failed. Allocates no memory from malloc: it may be used by a vfork()'s child and
// in a signal handler. Keeps errno.
class Inheritance {
 public:
  // For execve() and its kin. `path`: of the program, null if that was not found.
  Inheritance(const char* path, char* const* environment) noexcept;
  // For posix_spawn(), whose actions may be null.
  Inheritance(const char* path, char* const* environment,
              const posix_spawn_file_actions_t* actions) noexcept;
  ~Inheritance();
  Inheritance(const Inheritance&) = delete;
  Inheritance& operator=(const Inheritance&) = delete;

  // Whether there is anything that a child could get of ours.
  static bool would_pass() noexcept;

  // Why nothing may be executed: an error number, or 0.
  int error() const noexcept { return error_; }
  // The caller's, with what inherit() reads (inherited.h).
  char* const* environment() const noexcept { return environment_; }
  // The caller's, and what lets exactly the right descriptors through.
  const posix_spawn_file_actions_t* actions() const noexcept { return actions_; }

 private:
  // A descriptor of the child that is ours.
  struct Heir {
    int from;             // the caller's number
    int fd;               // the child's; -1: it does not get it
    bool closes_on_exec;  // unless an action duplicates it
    bool refused;
    bool marked;   // close-on-exec here, for as long as this lives
    int stood_in;  // the caller's own, where something else stands for as long as this lives; or -1
    Reference object;
  };
  // A hidden descriptor that the child gets, and what it is told of it.
  struct Passed {
    const Object* object;
    int hidden;
    int number;  // the same, or that of a copy that lives as long as this
    Inherited told;
    bool opened;  // not close-on-exec here, for as long as this lives
  };
  enum class Call { kExec, kSpawn };

  Inheritance(Call call, const char* path, char* const* environment,
              const posix_spawn_file_actions_t* actions) noexcept;
  bool collect(Call call, const SpawnActions& actions) noexcept;
  void apply(const SpawnActions& actions) noexcept;
  void settle() noexcept;
  bool choose_passed() noexcept;
  void drop_passed() noexcept;
  void refuse_all() noexcept;
  bool copy_unnameable() noexcept;
  void choose_numbers(const SpawnActions& actions) noexcept;
  bool write_environment(char* const* environment) noexcept;
  void change_here(Call call) noexcept;
  int add_actions(const SpawnActions& actions) noexcept;
  int add_action(const SpawnAction& action) noexcept;
  int close_all_from(int first) noexcept;
  void report(const char* path, const char* why) const noexcept;

  int error_ = 0;
  char* const* environment_;
  const posix_spawn_file_actions_t* actions_;
  posix_spawn_file_actions_t own_actions_{};
  MappedArray<Heir> heirs_;
  MappedArray<Passed> passed_;
  int first_number_ = -1;  // of what is passed, where an action closes all high numbers; else -1
  MappedArray<char> text_;
  MappedArray<char*> pointers_;
};

}  // namespace leat::preload
