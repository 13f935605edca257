#include "author.h"

#include <algorithm>

#include "steps.h"

namespace posix_fuzz {
namespace {

void settle(Meaning& gone) {
  if (!gone || gone.use_count() > 1) return;
  if (const Meaning peer = gone->peer.lock()) peer->over = true;
  for (const auto& caller : gone->callers)
    if (const Meaning waiting = caller.lock()) waiting->over = true;
}

}  // namespace

Author::Author(std::uint64_t seed, const Taste& taste) : random_(seed), taste_(taste) {
  for (int i : {0, 1}) {
    actor(i).alive = true;
    actor(i).process = std::make_shared<ModelProcess>();
  }
}

bool Author::is_allowed(const Word& word) const {
  if (!taste_.library_only) return true;
  const std::string text = word.text;
  return text.rfind("sys", 0) != 0 && text.rfind("raw", 0) != 0 && text != "dlsym";
}

int Author::any_word(const Words& words) {
  for (;;) {
    const Word& one = any_of(words);
    if (is_allowed(one)) return one.value;
  }
}

int Author::any_flags(const Words& words, int percent) {
  int value = 0;
  for (const Word& one : words)
    if (chance(percent)) value |= one.value;
  return value;
}

int Author::mostly_first(const Words& words, int percent) {
  return chance(percent) ? words[0].value : any_word(words);
}

int Author::some_bytes() {
  static const std::vector<int> usual = {0, 1, 2, 7, 16, 64, 100, 500, 1000, 3000};
  return chance(80) ? any_of(usual) : below(4000);
}

void Author::add(int actor, const char* name, std::initializer_list<int> arguments) {
  Step step;
  step.actor = actor;
  step.operation = operation_named(name);
  std::copy(arguments.begin(), arguments.end(), step.arguments);
  script_.push_back(step);
}

int Author::free_slot(int who) {
  // One of the first few, so that names are used again.
  std::vector<int> free;
  for (int i = 0; i < kSlots && free.size() < 4; ++i)
    if (!meaning(who, i)) free.push_back(i);
  return free.empty() ? below(kSlots) : any_of(free);
}

int Author::any_slot(int who) {
  // Now and then one whose descriptor is closed.
  if (chance(4)) return below(kSlots);
  return slot_where(who, [](const Described&) { return true; });
}

int Author::alive_actor() {
  std::vector<int> able;
  for (int i = 0; i < kActors; ++i)
    if (actor(i).alive && !actor(i).asleep && !actor(i).stopped) able.push_back(i);
  return able.empty() ? kNoActor : any_of(able);
}

int Author::new_actor() {
  for (int i = 0; i < kActors; ++i)
    if (!actor(i).process) return i;
  return kNoActor;
}

Meaning Author::make(int who, int slot, Thing thing) {
  auto made = std::make_shared<Described>();
  made->thing = thing;
  forget(who, slot);
  meaning(who, slot) = made;
  close_on_exec(who, slot) = false;
  return made;
}

void Author::forget(int who, int slot) {
  Meaning gone = std::move(meaning(who, slot));
  meaning(who, slot).reset();
  settle(gone);
}

bool Author::is_elsewhere(int who, const Meaning& one) const {
  const auto& actors = model_.actors;
  const auto& here = actors[static_cast<std::size_t>(who)].process;
  return std::any_of(actors.begin(), actors.end(), [&](const ModelActor& other) {
    if (!other.alive || !other.process) return false;
    const auto& slots = other.process->slots;
    const bool passed = std::any_of(slots.begin(), slots.end(), [&](const Meaning& through) {
      return through && through->passed == one;
    });
    return passed ||
           (other.process != here && std::find(slots.begin(), slots.end(), one) != slots.end());
  });
}

bool Author::outlives_in_set(int who, int slot, bool unseen) {
  const Meaning& one = meaning(who, slot);
  if (!one || !one->in_set || !is_elsewhere(who, one)) return false;
  const auto& slots = actor(who).process->slots;
  if (std::count(slots.begin(), slots.end(), one) > 1) return false;
  if (one->thing == Thing::kStream) return true;
  return (one->thing == Thing::kSocket || one->thing == Thing::kListener) &&
         (unseen || one->copied || one->edge);
}

void Author::set_stopped(int who, bool stopped) {
  for (ModelActor& one : model_.actors)
    if (one.process == actor(who).process) one.stopped = stopped;
}

std::shared_ptr<ModelProcess> Author::after_exec(const ModelProcess& before) {
  auto after = std::make_shared<ModelProcess>();
  for (std::size_t i = 0; i < kSlots; ++i)
    if (!before.close_on_exec[i]) after->slots[i] = before.slots[i];
  after->hears_loader = before.hears_loader;
  after->has_few_numbers = before.has_few_numbers;
  return after;
}

void Author::clear(ModelProcess& ended) {
  for (Meaning& one : ended.slots) {
    Meaning gone = std::move(one);
    one.reset();
    settle(gone);
  }
}

void Author::leave_threads(int who) {
  for (int i = 0; i < kActors; ++i)
    if (i != who && actor(i).process == actor(who).process) actor(i).alive = false;
}

void Author::ended(int who) {
  const auto gone = actor(who).process;
  for (ModelActor& one : model_.actors)
    if (one.process == gone) one.alive = false;
  clear(*gone);
}

bool Author::is_received_by_others(int who, const Meaning& one) const {
  const auto& actors = model_.actors;
  return std::any_of(actors.begin(), actors.end(), [&](const ModelActor& other) {
    return &other != &actors[static_cast<std::size_t>(who)] && other.received_at.lock() == one;
  });
}

bool Author::may_sleep(int who) {
  if (!chance(6) || sleepers_ >= 2) return false;
  // Somebody must be able to go on.
  int awake = 0;
  for (const ModelActor& one : model_.actors)
    awake += one.alive && !one.asleep && !one.stopped ? 1 : 0;
  if (awake < 2) return false;
  ++sleepers_;
  actor(who).asleep = true;
  return true;
}

void Author::perhaps_awake() {
  for (ModelActor& one : model_.actors)
    if (one.asleep && chance(60)) one.asleep = false;
}

}  // namespace posix_fuzz
