// Threads, processes and signals.
#include <memory>
#include <utility>

#include "author.h"
#include "known_differences.h"
#include "steps.h"

namespace posix_fuzz {

namespace {

// Rule shared_set.
void leave_sets(Author& author, int who) {
  for (int slot = 0; slot < kSlots; ++slot) {
    const Meaning set = author.meaning(who, slot);
    if (!set || set->thing != Thing::kEpoll) continue;
    author.add(who, "close", {slot, word_value(kCloseWays, "close")});
    author.forget(who, slot);
  }
}

}  // namespace

void processes(Author& author, int who) {
  const int fresh = author.new_actor();
  const int what = author.below(100);
  ModelActor& parent = author.actor(who);
  // Rule loader.
  const bool executes = (what >= 25 && what < 40) || (what >= 60 && what < 70);
  if (executes && parent.process->hears_loader && parent.process->has_few_numbers) return;
  if (what < 60 && fresh != Author::kNoActor) {
    ModelActor& child = author.actor(fresh);
    child.alive = true;
    if (what < 25) {
      author.add(who, "fork", {fresh});
      child.process = std::make_shared<ModelProcess>(*parent.process);
    } else if (what < 40) {
      author.add(who, "spawn", {fresh, author.any_word(kSpawnWays)});
      child.process = author.after_exec(*parent.process);
    } else {
      author.add(who, "thread", {fresh});
      child.process = parent.process;
      child.is_thread = true;
      parent.has_threads = true;
      return;
    }
    parent.process->children++;
    leave_sets(author, fresh);
    return;
  }
  if (what < 70) {
    for (int slot = 0; slot < kSlots; ++slot)
      if (author.close_on_exec(who, slot) && author.outlives_in_set(who, slot)) return;
    author.add(who, "exec");
    author.leave_threads(who);
    auto kept = author.after_exec(*parent.process);
    author.clear(*parent.process);
    parent.process = kept;
    parent.is_thread = false;
    return;
  }
  if (what < 80) {
    int left = 0;
    for (const ModelActor& one : author.model().actors) left += one.alive ? 1 : 0;
    if (left < 2 || (who < 2 && !author.chance(30))) return;
    if (parent.is_thread) {
      author.add(who, "exit", {word_value(kExitWays, "thread")});
      parent.alive = false;
      return;
    }
    if (author.chance(50)) {
      author.add(who, "kill");
    } else {
      author.add(who, "exit", {author.below(2)});
    }
    author.ended(who);
    return;
  }
  if (what < 88) {
    if (parent.process->children == 0) return;
    for (const ModelActor& one : author.model().actors)
      if (!one.alive && one.process && !one.is_thread) {
        author.add(who, "wait");
        parent.process->children--;
        return;
      }
    return;
  }
  // Stopped for some steps.
  for (int i = 0; i < kActors; ++i) {
    if (!author.actor(i).alive || !author.actor(i).stopped) continue;
    author.add(i, "continue");
    author.set_stopped(i, false);
    return;
  }
  if (author.chance(50)) return;
  int awake = 0;
  for (const ModelActor& one : author.model().actors)
    awake += one.alive && !one.stopped && one.process != parent.process ? 1 : 0;
  if (awake == 0) return;
  author.add(who, "stop");
  author.set_stopped(who, true);
}

void signals(Author& author, int who) {
  ModelActor& one = author.actor(who);
  if (one.process->handles && author.chance(70)) {
    // To whomever of that process, also to one that sleeps.
    for (int i = 0; i < kActors; ++i)
      if (author.actor(i).alive && !author.actor(i).stopped &&
          author.actor(i).process == one.process && author.chance(60))
        who = i;
    if (const int closed = one.process->handler_closes;
        closed != kNoSlot && author.outlives_in_set(who, closed))
      return;
    author.add(who, "signal");
    return;
  }
  if (author.chance(20)) {
    author.add(who, "handle",
               {word_value(kSignals, "PIPE"),
                word_value(kHandlerActions, author.chance(80) ? "ignore" : "default"),
                kNoSlot < 0 ? 0 : 0, 0});
    return;
  }
  const int slot = author.slot_of(who, Thing::kStream);
  if (slot == kNoSlot) return;
  static constexpr const char* kActions[] = {"nothing", "get", "put", "close"};
  const int action = author.below(4);
  author.add(who, "handle",
             {word_value(kSignals, "USR1"), word_value(kHandlerActions, kActions[action]), slot,
              author.below(2)});
  one.process->handles = true;
  one.process->handler_closes = action == 3 ? slot : kNoSlot;
}

}  // namespace posix_fuzz
