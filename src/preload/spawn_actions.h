// What a program wants done with the descriptors of a child that posix_spawn() starts. The C
// library tells nobody what was added to a posix_spawn_file_actions_t, so it is noted beside it.
#pragma once

#include <spawn.h>
#include <sys/types.h>

#include <cstddef>

namespace leat::preload {

struct SpawnAction {
  enum class Kind { kOpen, kClose, kDup2, kChangeFolder, kChangeToFolder, kCloseFrom, kTerminal };
  Kind kind;
  int fd = -1;           // the first one of kCloseFrom
  int to = -1;           // kDup2
  char* path = nullptr;  // kOpen, kChangeFolder
  int open_flags = 0;
  mode_t mode = 0;
};

// The actions of one posix_spawn_file_actions_t, in order; the view of them lives no longer.
class SpawnActions {
 public:
  explicit SpawnActions(const posix_spawn_file_actions_t* actions) noexcept;

  // False: some were added in a way that was not seen, so none can be told.
  bool known() const noexcept { return known_; }
  const SpawnAction* begin() const noexcept { return first_; }
  const SpawnAction* end() const noexcept { return first_ + count_; }
  std::size_t size() const noexcept { return count_; }
  bool duplicates(int fd) const noexcept;

 private:
  const SpawnAction* first_ = nullptr;
  std::size_t count_ = 0;
  bool known_ = true;
};

// After the C library's own of the same name. note_spawn_action() copies the path; false: memory is
// out.
void begin_spawn_actions(posix_spawn_file_actions_t& actions) noexcept;
void end_spawn_actions(posix_spawn_file_actions_t& actions) noexcept;
bool note_spawn_action(posix_spawn_file_actions_t& actions, const SpawnAction& action) noexcept;

// Adds the same to the C library's object. An error number, or 0.
int add_spawn_action(posix_spawn_file_actions_t& actions, const SpawnAction& action) noexcept;

}  // namespace leat::preload
