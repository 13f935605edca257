#include "preload/spawn_actions.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "preload/real.h"

namespace leat::preload {
namespace {

struct Noted {
  std::size_t count;
  std::size_t room;
  SpawnAction* actions;
};

// NOLINTBEGIN(bugprone-sizeof-expression): the size of the pointer is meant
// In the padding of the program's own object, whose end the C library leaves alone: so the notes
// need no lock, and go where the object goes.
void* place_of_notes(const posix_spawn_file_actions_t& actions) noexcept {
  constexpr std::size_t kInts = sizeof(Noted*) / sizeof(int);
  return const_cast<int*>(std::end(actions.__pad) - kInts);
}

Noted* notes_of(const posix_spawn_file_actions_t& actions) noexcept {
  Noted* notes = nullptr;
  std::memcpy(&notes, place_of_notes(actions), sizeof(notes));
  return notes;
}

void set_notes(posix_spawn_file_actions_t& actions, Noted* notes) noexcept {
  std::memcpy(place_of_notes(actions), &notes, sizeof(notes));
}
// NOLINTEND(bugprone-sizeof-expression)

bool make_room(Noted& notes) noexcept {
  if (notes.count < notes.room) return true;
  const std::size_t room = notes.room == 0 ? 8 : 2 * notes.room;
  void* larger = realloc(notes.actions, room * sizeof(SpawnAction));
  if (larger == nullptr) return false;
  notes.actions = static_cast<SpawnAction*>(larger);
  notes.room = room;
  return true;
}

}  // namespace

SpawnActions::SpawnActions(const posix_spawn_file_actions_t* actions) noexcept {
  if (actions == nullptr || actions->__used == 0) return;
  const Noted* notes = notes_of(*actions);
  known_ = notes != nullptr && notes->count == static_cast<std::size_t>(actions->__used);
  if (!known_) return;
  first_ = notes->actions;
  count_ = notes->count;
}

bool SpawnActions::duplicates(int fd) const noexcept {
  return std::any_of(begin(), end(), [fd](const SpawnAction& action) {
    return action.kind == SpawnAction::Kind::kDup2 && action.fd == fd;
  });
}

void begin_spawn_actions(posix_spawn_file_actions_t& actions) noexcept {
  set_notes(actions, nullptr);
}

void end_spawn_actions(posix_spawn_file_actions_t& actions) noexcept {
  Noted* notes = notes_of(actions);
  if (notes == nullptr) return;
  for (std::size_t i = 0; i < notes->count; ++i) free(notes->actions[i].path);
  free(notes->actions);
  free(notes);
  set_notes(actions, nullptr);
}

bool note_spawn_action(posix_spawn_file_actions_t& actions, const SpawnAction& action) noexcept {
  Noted* notes = notes_of(actions);
  if (notes == nullptr) {
    notes = static_cast<Noted*>(calloc(1, sizeof(Noted)));
    if (notes == nullptr) return false;
    set_notes(actions, notes);
  }
  if (!make_room(*notes)) return false;
  SpawnAction copy = action;
  if (action.path != nullptr) {
    copy.path = strdup(action.path);
    if (copy.path == nullptr) return false;
  }
  notes->actions[notes->count++] = copy;
  return true;
}

int add_spawn_action(posix_spawn_file_actions_t& actions, const SpawnAction& action) noexcept {
  switch (action.kind) {
    case SpawnAction::Kind::kOpen:
      return real().posix_spawn_file_actions_addopen(&actions, action.fd, action.path,
                                                     action.open_flags, action.mode);
    case SpawnAction::Kind::kClose:
      return real().posix_spawn_file_actions_addclose(&actions, action.fd);
    case SpawnAction::Kind::kDup2:
      return real().posix_spawn_file_actions_adddup2(&actions, action.fd, action.to);
    case SpawnAction::Kind::kChangeFolder:
      return real().posix_spawn_file_actions_addchdir_np(&actions, action.path);
    case SpawnAction::Kind::kChangeToFolder:
      return real().posix_spawn_file_actions_addfchdir_np(&actions, action.fd);
    case SpawnAction::Kind::kCloseFrom:
      return real().posix_spawn_file_actions_addclosefrom_np(&actions, action.fd);
    case SpawnAction::Kind::kTerminal:
      return real().posix_spawn_file_actions_addtcsetpgrp_np(&actions, action.fd);
  }
  return EINVAL;
}

}  // namespace leat::preload
