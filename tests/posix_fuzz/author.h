// Writes a script: draws by a seed, and keeps a model of what it has written so far.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "generate.h"
#include "model.h"
#include "script.h"

namespace posix_fuzz {

class Author {
 public:
  static constexpr int kNoActor = -1;

  Author(std::uint64_t seed, const Taste& taste);

  // Draws. Not by the library's distributions, which differ from one library to another.
  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }
  bool chance(int percent) { return below(100) < percent; }
  int any_word(const Words& words);
  int any_flags(const Words& words, int percent);
  // The usual way most of the time.
  int mostly_first(const Words& words, int percent = 60);
  // 1: by syscall().
  int by_syscall() { return chance(15) && !taste_.library_only ? 1 : 0; }
  int some_bytes();
  template <typename Value>
  const Value& any_of(const std::vector<Value>& values) {
    return values[static_cast<std::size_t>(below(static_cast<int>(values.size())))];
  }

  // Steps.
  void add(int actor, const char* name, std::initializer_list<int> arguments = {});
  Script& script() { return script_; }

  // What there is.
  Model& model() { return model_; }
  ModelActor& actor(int index) { return model_.actors[static_cast<std::size_t>(index)]; }
  Meaning& meaning(int who, int slot) {
    return actor(who).process->slots[static_cast<std::size_t>(slot)];
  }
  bool& close_on_exec(int who, int slot) {
    return actor(who).process->close_on_exec[static_cast<std::size_t>(slot)];
  }
  int free_slot(int who);
  // A slot of such a thing, or kNoSlot.
  template <typename Accept>
  int slot_where(int who, Accept accept) {
    std::vector<int> found;
    for (int i = 0; i < kSlots; ++i)
      if (meaning(who, i) && accept(*meaning(who, i))) found.push_back(i);
    return found.empty() ? kNoSlot : any_of(found);
  }
  int slot_of(int who, Thing thing) {
    return slot_where(who, [&](const Described& one) { return one.thing == thing; });
  }
  int any_slot(int who);
  // An actor that can do a step, or kNoActor.
  int alive_actor();
  int new_actor();

  // What becomes of it.
  Meaning make(int who, int slot, Thing thing);
  // The last descriptor of a connection ends it.
  void forget(int who, int slot);
  void set_stopped(int who, bool stopped);
  // Whether somebody else has it too: another process, or a message that nobody has taken.
  bool is_elsewhere(int who, const Meaning& one) const;
  // Rule closed_elsewhere: whether a set would go on to tell of what the process closes.
  bool outlives_in_set(int who, int slot, bool unseen = false);
  static std::shared_ptr<ModelProcess> after_exec(const ModelProcess& before);
  static void clear(ModelProcess& ended);
  // exec leaves the thread that calls it.
  void leave_threads(int who);
  void ended(int who);

  // Rule one_sleeper: whether another actor may sleep in a call that receives there.
  bool is_received_by_others(int who, const Meaning& one) const;
  // Whether a call may block here; the actor counts as asleep then.
  bool may_sleep(int who);
  // After what may have woken others: they are asked again.
  void perhaps_awake();
  bool has_sleepers() const { return sleepers_ != 0; }

  // The slot that was opened last.
  int newest = kNoSlot;

 private:
  bool is_allowed(const Word& word) const;

  std::mt19937_64 random_;
  const Taste taste_;
  Script script_;
  Model model_;
  int sleepers_ = 0;
};

// Kinds of steps: each adds some to the script, by that actor, or none where they make no sense.
void begin_with_connection(Author& author);
void listen_one(Author& author, int who);
void connect_one(Author& author, int who);
void accept_one(Author& author, int who);
void shut(Author& author, int who);
void ask(Author& author, int who);
void set_option(Author& author, int who);
void put(Author& author, int who);
void get(Author& author, int who);
// Does not block.
void get_at_once(Author& author, int who, int slot, int count);
// Until nothing is left.
void empty(Author& author, int who, int slot);
void move_bytes(Author& author, int who);
void move_many_bytes(Author& author, int who);
void send_urgently(Author& author, int who);
void pass_one(Author& author, int who);
void open_one(Author& author, int who);
void close_one(Author& author, int who);
void copy_one(Author& author, int who);
void limit_numbers(Author& author, int who);
void look(Author& author, int who);
void end_with_look(Author& author);
void poll_some(Author& author, int who);
void maybe_add_to_set(Author& author, int who, int slot);
void epoll_some(Author& author, int who);
void processes(Author& author, int who);
void signals(Author& author, int who);

}  // namespace posix_fuzz
