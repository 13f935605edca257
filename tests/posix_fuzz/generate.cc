#include "generate.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <random>
#include <string>

#include "known_differences.h"
#include "model.h"
#include "steps.h"

namespace posix_fuzz {
namespace {

class Generator {
 public:
  Generator(std::uint64_t seed, const Taste& taste) : random_(seed), taste_(taste) {
    for (int i : {0, 1}) {
      model_.actors[static_cast<std::size_t>(i)].alive = true;
      model_.actors[static_cast<std::size_t>(i)].process = std::make_shared<ModelProcess>();
    }
  }

  Script script() {
    if (chance(85)) begin_with_connection();
    const int steps = 6 + below(chance(20) ? 45 : 22);
    for (int i = 0; i < steps; ++i) random_step();
    end_with_look();
    return std::move(script_);
  }

 private:
  // --- chance
  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }
  bool chance(int percent) { return below(100) < percent; }
  int any_word(const Words& words) {
    for (;;) {
      const Word& one = words[static_cast<std::size_t>(below(static_cast<int>(words.size())))];
      if (!taste_.library_only || is_library(one.text)) return one.value;
    }
  }
  static bool is_library(const std::string& text) {
    return text.rfind("sys", 0) != 0 && text.rfind("raw", 0) != 0 && text != "dlsym";
  }
  // 1: by syscall().
  int by_syscall() { return chance(15) && !taste_.library_only ? 1 : 0; }
  int any_flags(const Words& words, int percent) {
    int value = 0;
    for (const Word& one : words)
      if (chance(percent)) value |= one.value;
    return value;
  }
  // The usual way most of the time.
  int mostly_first(const Words& words, int percent = 60) {
    return chance(percent) ? words[0].value : any_word(words);
  }
  int some_bytes() {
    static constexpr int kUsual[] = {0, 1, 2, 7, 16, 64, 100, 500, 1000, 3000};
    return chance(80) ? kUsual[below(10)] : below(4000);
  }

  // --- the script
  void add(int actor, const char* name, std::initializer_list<int> arguments = {}) {
    Step step;
    step.actor = actor;
    step.operation = operation_named(name);
    std::copy(arguments.begin(), arguments.end(), step.arguments);
    script_.push_back(step);
  }
  ModelActor& actor(int index) { return model_.actors[static_cast<std::size_t>(index)]; }
  Meaning& meaning(int who, int slot) {
    return actor(who).process->slots[static_cast<std::size_t>(slot)];
  }

  int free_slot(int who) {
    std::vector<int> free;
    for (int i = 0; i < kSlots; ++i)
      if (!meaning(who, i)) free.push_back(i);
    return free.empty() ? below(kSlots)
                        : free[static_cast<std::size_t>(
                              below(static_cast<int>(std::min<std::size_t>(free.size(), 4))))];
  }
  // A slot of such a thing, or kNoSlot.
  template <typename Accept>
  int slot_where(int who, Accept accept) {
    std::vector<int> found;
    for (int i = 0; i < kSlots; ++i)
      if (meaning(who, i) && accept(*meaning(who, i))) found.push_back(i);
    return found.empty() ? kNoSlot
                         : found[static_cast<std::size_t>(below(static_cast<int>(found.size())))];
  }
  int slot_of(int who, Thing thing) {
    return slot_where(who, [&](const Described& one) { return one.thing == thing; });
  }
  int any_slot(int who) {
    // Now and then one whose descriptor is closed.
    if (chance(4)) return below(kSlots);
    return slot_where(who, [](const Described&) { return true; });
  }
  Meaning make(int who, int slot, Thing thing) {
    auto made = std::make_shared<Described>();
    made->thing = thing;
    forget(who, slot);
    meaning(who, slot) = made;
    actor(who).process->close_on_exec[static_cast<std::size_t>(slot)] = false;
    return made;
  }
  // The last descriptor of a connection ends it.
  void forget(int who, int slot) {
    Meaning gone = std::move(meaning(who, slot));
    meaning(who, slot).reset();
    settle(gone);
  }
  static void settle(Meaning& gone) {
    if (!gone || gone.use_count() > 1) return;
    if (const Meaning peer = gone->peer.lock()) peer->over = true;
    for (const auto& caller : gone->callers)
      if (const Meaning waiting = caller.lock()) waiting->over = true;
  }

  int alive_actor() {
    std::vector<int> able;
    for (int i = 0; i < kActors; ++i)
      if (actor(i).alive && !actor(i).asleep && !actor(i).stopped) able.push_back(i);
    if (able.empty()) return kNoActor;
    return able[static_cast<std::size_t>(below(static_cast<int>(able.size())))];
  }

  // --- connections
  int listen_somewhere(int who) {
    const int slot = free_slot(who);
    const int place = below(kPlaces);
    const int family = chance(90) ? AF_INET : AF_INET6;
    const Meaning listener = make(who, slot, Thing::kSocket);
    listener->family = family;
    add(who, "socket", {slot, family, 0, mostly_first(kHows, 85)});
    if (chance(30)) maybe_add_to_set(who, slot);
    add(who, "bind", {slot, place, family});
    if (chance(10)) maybe_add_to_set(who, slot);
    add(who, "listen", {slot, 8});
    listener->thing = Thing::kListener;
    listener->place = place;
    model_.places[static_cast<std::size_t>(place)] = listener;
    return slot;
  }

  void connect_to(int who, int place) {
    const Meaning listener = model_.places[static_cast<std::size_t>(place)].lock();
    const int slot = free_slot(who);
    const int family = listener ? listener->family : AF_INET;
    const bool nonblocking = chance(25);
    const Meaning socket = make(who, slot, Thing::kSocket);
    socket->family = family;
    socket->nonblocking = nonblocking;
    add(who, "socket", {slot, family, nonblocking ? SOCK_NONBLOCK : 0, mostly_first(kHows, 85)});
    if (chance(25)) maybe_add_to_set(who, slot);
    add(who, "connect", {slot, place, by_syscall()});
    if (nonblocking) {
      // Rule late_offer.
      add(who, "poll", {slot, kNoSlot, kNoSlot, POLLOUT, 1, below(2)});
      if (chance(50)) add(who, "getsockopt", {slot, word_value(kOptions, "ERROR")});
    }
    if (!listener) return;
    socket->thing = Thing::kStream;
    listener->queued++;
    listener->callers.push_back(socket);
  }

  void accept_at(int who, int slot) {
    const Meaning listener = meaning(who, slot);
    const bool comes = listener->queued > 0;
    if (!comes && !listener->nonblocking && !may_sleep(who)) return;
    const int accepted = free_slot(who);
    const int flags = chance(70) ? 0 : any_flags(kSocketFlags, 50);
    const int way = flags != 0 ? word_value(kAcceptWays, "accept4") : any_word(kAcceptWays);
    add(who, "accept", {slot, accepted, flags, way});
    if (!comes) return;
    listener->queued--;
    const Meaning stream = make(who, accepted, Thing::kStream);
    stream->nonblocking = (flags & SOCK_NONBLOCK) != 0;
    stream->peer = listener->callers.front();
    if (const Meaning caller = stream->peer.lock()) caller->peer = stream;
    // What the caller has sent meanwhile.
    if (const Meaning caller = stream->peer.lock()) {
      stream->unread = caller->queued;
      caller->queued = 0;
    } else {
      stream->over = true;
    }
    listener->callers.erase(listener->callers.begin());
  }

  void begin_with_connection() {
    const int server = below(2);
    const int listener = listen_somewhere(server);
    if (chance(20)) maybe_add_to_set(server, listener);
    connect_to(1 - server, meaning(server, listener)->place);
    if (chance(95)) accept_at(server, listener);
    if (chance(25)) {
      connect_to(1 - server, meaning(server, listener)->place);
      accept_at(server, listener);
    }
  }

  // --- whether a call may block here
  bool may_sleep(int who) {
    if (!chance(6) || sleepers_ >= 2) return false;
    // Somebody must be able to go on.
    int awake = 0;
    for (int i = 0; i < kActors; ++i)
      awake += actor(i).alive && !actor(i).asleep && !actor(i).stopped ? 1 : 0;
    if (awake < 2) return false;
    ++sleepers_;
    actor(who).asleep = true;
    return true;
  }
  // After what may have woken others: they are asked again.
  void perhaps_awake() {
    for (ModelActor& one : model_.actors)
      if (one.asleep && chance(60)) one.asleep = false;
  }

  // --- steps
  void random_step() {
    const int who = alive_actor();
    if (who == kNoActor) {
      perhaps_awake();
      return;
    }
    struct Choice {
      int weight;
      void (Generator::*step)(int);
    };
    static constexpr Choice kChoices[] = {
        {22, &Generator::put},       {22, &Generator::get},        {8, &Generator::close_one},
        {6, &Generator::open_one},   {5, &Generator::connect_one}, {6, &Generator::accept_one},
        {8, &Generator::poll_some},  {9, &Generator::epoll_some},  {4, &Generator::shut},
        {5, &Generator::copy_one},   {6, &Generator::ask},         {3, &Generator::set_option},
        {3, &Generator::move_bytes}, {3, &Generator::processes},   {3, &Generator::signals},
        {1, &Generator::pass_one},   {1, &Generator::listen_one},  {1, &Generator::look}};
    int total = 0;
    for (const Choice& one : kChoices) total += one.weight;
    int chosen = below(total);
    for (const Choice& one : kChoices) {
      chosen -= one.weight;
      if (chosen >= 0) continue;
      (this->*one.step)(who);
      break;
    }
    perhaps_awake();
  }

  void put(int who) {
    const int slot = chance(85) ? slot_of(who, Thing::kStream) : any_slot(who);
    if (slot == kNoSlot) return;
    const Meaning to = meaning(who, slot);
    const int count = some_bytes();
    int form = any_word(kPutForms);
    int flags = chance(70) ? MSG_NOSIGNAL : any_flags(kSendFlags, 20) & ~MSG_OOB;
    if (to && to->thing == Thing::kStream) {
      if (chance(kUrgentPercent)) flags |= MSG_OOB;
      const Meaning peer = to->peer.lock();
      // Rule reset_within_call.
      if (form == word_value(kPutForms, "sendmmsg2") && (to->over || !peer))
        form = word_value(kPutForms, "sendmmsg");
      // So much fits everywhere: how much more is open.
      if ((peer ? peer->unread : to->queued) + 2 * count > 30'000) return;
      const int sent = form == word_value(kPutForms, "sendmmsg2") ? 2 * count : count;
      if (peer) {
        peer->unread += sent;
      } else {
        to->queued += sent;
      }
    }
    add(who, "put", {slot, form, count, flags});
  }

  void get(int who) {
    const int slot = chance(85) ? slot_of(who, Thing::kStream) : any_slot(who);
    if (slot == kNoSlot) return;
    const Meaning from = meaning(who, slot);
    const int count = some_bytes();
    const int form = any_word(kGetForms);
    int flags = chance(60) ? 0 : any_flags(kReceiveFlags, 25) & ~MSG_OOB;
    if (from && from->thing == Thing::kStream && chance(kUrgentPercent)) flags |= MSG_OOB;
    if (from && !from->nonblocking && (from->thing == Thing::kStream)) {
      const bool waits_for_all = (flags & MSG_WAITALL) != 0 && count > from->unread;
      const bool comes = from->over || (from->unread > 0 && !waits_for_all);
      const bool has_flags = form != word_value(kGetForms, "read") && takes_flags(form);
      if (!comes && !may_sleep(who)) {
        if (!has_flags) return get_at_once(who, slot, count);
        flags |= MSG_DONTWAIT;
      }
    }
    add(who, "get", {slot, form, count, flags});
    if (from && (flags & MSG_PEEK) == 0) from->unread = std::max(0, from->unread - count);
  }
  bool takes_flags(int form) const {
    for (const char* name :
         {"recv", "recv_chk", "recvfrom", "recvmsg", "recvmmsg", "sys_recvfrom", "sys_recvmsg"})
      if (form == word_value(kGetForms, name)) return true;
    return false;
  }
  void get_at_once(int who, int slot, int count) {
    add(who, "get", {slot, word_value(kGetForms, "recv"), count, MSG_DONTWAIT});
    if (const Meaning from = meaning(who, slot)) from->unread = std::max(0, from->unread - count);
  }

  void close_one(int who) {
    const int slot = any_slot(who);
    if (slot == kNoSlot) return;
    const Meaning gone = meaning(who, slot);
    const int way = mostly_first(kCloseWays, 30);
    if (gone && gone->thing == Thing::kStream && is_unseen_close(way)) {
      // Rule unseen_close.
      add(who, "get", {slot, word_value(kGetForms, "recv"), 8192, MSG_DONTWAIT});
      add(who, "get", {slot, word_value(kGetForms, "recv"), 8192, MSG_DONTWAIT});
      add(who, "get", {slot, word_value(kGetForms, "recv"), 8192, MSG_DONTWAIT});
      add(who, "get", {slot, word_value(kGetForms, "recv"), 8192, MSG_DONTWAIT});
    }
    add(who, "close", {slot, way});
    forget(who, slot);
    // The number is used again.
    if (!chance(60)) return;
    const int times = 1 + below(2);
    for (int i = 0; i < times; ++i) {
      open_one(who);
      if (chance(70)) use_new(who);
    }
  }
  void use_new(int who) {
    const int slot = newest_;
    if (slot == kNoSlot || !meaning(who, slot)) return;
    const int puts = any_word(kPutForms);
    const int gets = any_word(kGetForms);
    if (meaning(who, slot)->thing == Thing::kStream || meaning(who, slot)->thing == Thing::kSocket)
      return;
    if (chance(60)) add(who, "put", {slot, puts, some_bytes(), MSG_NOSIGNAL});
    if (chance(60)) add(who, "get", {slot, gets, some_bytes(), 0});
    if (chance(25)) add(who, "waiting_bytes", {slot});
    if (chance(25))
      add(who, "poll", {slot, kNoSlot, kNoSlot, POLLIN | POLLOUT, 0, any_word(kPollWays)});
  }

  void open_one(int who) {
    const int slot = free_slot(who);
    newest_ = slot;
    const int way = any_word(kOpenWays);
    switch (below(5)) {
      case 0:
      case 1:
        add(who, "file", {slot, way});
        make(who, slot, Thing::kFile);
        break;
      case 2:
      case 3: {
        const bool unix_pair = chance(30);
        const Meaning first = make(who, slot, unix_pair ? Thing::kUnix : Thing::kPipeReader);
        const int second_slot = free_slot(who);
        const Meaning second =
            make(who, second_slot, unix_pair ? Thing::kUnix : Thing::kPipeWriter);
        first->nonblocking = second->nonblocking = true;
        first->peer = second;
        second->peer = first;
        add(who, unix_pair ? "socketpair" : "pipe", {slot, second_slot, way});
        newest_ = chance(50) ? slot : second_slot;
        break;
      }
      default:
        add(who, "eventfd", {slot, way});
        make(who, slot, Thing::kEventfd)->nonblocking = true;
    }
  }

  void connect_one(int who) {
    std::vector<int> known;
    for (int i = 0; i < kPlaces; ++i)
      if (const Meaning listener = model_.places[static_cast<std::size_t>(i)].lock();
          listener && listener->queued < 4)
        known.push_back(i);
    if (known.empty() || chance(5)) {
      if (chance(20)) connect_to(who, below(kPlaces));
      return;
    }
    connect_to(who, known[static_cast<std::size_t>(below(static_cast<int>(known.size())))]);
  }

  void accept_one(int who) {
    const int slot = slot_where(
        who, [](const Described& one) { return one.thing == Thing::kListener && one.queued > 0; });
    if (slot != kNoSlot) return accept_at(who, slot);
    const int other = slot_of(who, Thing::kListener);
    if (other != kNoSlot && chance(30)) accept_at(who, other);
  }

  void listen_one(int who) {
    if (chance(70)) {
      listen_somewhere(who);
    } else if (const int slot = any_slot(who); slot != kNoSlot) {
      add(who, "listen", {slot, 8});
    }
  }

  void poll_some(int who) {
    int slots[3] = {any_slot(who), chance(40) ? any_slot(who) : kNoSlot,
                    chance(20) ? any_slot(who) : kNoSlot};
    const int events = chance(50) ? POLLIN : any_flags(kPollEvents, 50);
    int timeout = chance(75) ? 0 : 1;
    if (timeout == 1 && may_sleep(who)) timeout = -1;
    add(who, "poll", {slots[0], slots[1], slots[2], events, timeout, any_word(kPollWays)});
  }

  int some_epoll_events() {
    int events = chance(60) ? int{EPOLLIN} : any_flags(kEpollEvents, 35);
    if (chance(40)) events |= static_cast<int>(EPOLLET);
    if (chance(12)) events |= EPOLLONESHOT;
    if (chance(30)) events |= EPOLLRDHUP;
    return events;
  }
  void maybe_add_to_set(int who, int slot) {
    int set = slot_of(who, Thing::kEpoll);
    if (set == kNoSlot) {
      if (!chance(50)) return;
      set = free_slot(who);
      add(who, "epoll_create", {set, below(2)});
      make(who, set, Thing::kEpoll);
    }
    add(who, "epoll_ctl", {set, EPOLL_CTL_ADD, slot, some_epoll_events(), by_syscall()});
  }
  void epoll_some(int who) {
    const int set = slot_of(who, Thing::kEpoll);
    if (set == kNoSlot) {
      const int slot = free_slot(who);
      add(who, "epoll_create", {slot, below(2)});
      make(who, slot, Thing::kEpoll);
      const int times = 1 + below(2);
      for (int i = 0; i < times; ++i)
        if (const int member = any_slot(who); member != kNoSlot && member != slot)
          add(who, "epoll_ctl", {slot, EPOLL_CTL_ADD, member, some_epoll_events(), 0});
      return;
    }
    const int what = below(100);
    if (what < 45) {
      int timeout = chance(80) ? 0 : 1;
      if (timeout == 1 && may_sleep(who)) timeout = -1;
      add(who, "epoll_wait", {set, timeout, any_word(kEpollWays)});
      return;
    }
    const int member = any_slot(who);
    if (member == kNoSlot) return;
    const int control = what < 75 ? EPOLL_CTL_ADD : (what < 90 ? EPOLL_CTL_MOD : EPOLL_CTL_DEL);
    add(who, "epoll_ctl", {set, control, member, some_epoll_events(), by_syscall()});
  }

  void shut(int who) {
    const int slot = chance(90) ? slot_of(who, Thing::kStream) : any_slot(who);
    if (slot == kNoSlot) return;
    const int how = chance(60) ? SHUT_WR : below(3);
    add(who, "shutdown", {slot, how, by_syscall()});
    const Meaning ended = meaning(who, slot);
    if (!ended) return;
    if (how != SHUT_RD) {
      if (const Meaning peer = ended->peer.lock()) peer->over = true;
    }
    if (how != SHUT_WR) ended->over = true;
  }

  void copy_one(int who) {
    const int slot = any_slot(who);
    if (slot == kNoSlot) return;
    const Meaning same = meaning(who, slot);
    const int what = below(3);
    const int to = what == 2 ? any_slot(who) : free_slot(who);
    if (to == kNoSlot || to == slot) return;
    if (what == 0) add(who, "dup", {slot, to});
    if (what == 1) add(who, "dupfd", {slot, to, below(30), below(2)});
    if (what == 2) {
      const int way = any_word(kDupWays);
      // Rule unseen_copy.
      const bool is_carried =
          same && (same->thing == Thing::kStream || same->thing == Thing::kSocket ||
                   same->thing == Thing::kListener || same->thing == Thing::kEpoll);
      if (is_carried && is_unseen_copy(way)) return;
      if (const Meaning over = meaning(who, to);
          over && over->thing == Thing::kStream && is_unseen_copy(way))
        for (int i = 0; i < 4; ++i)
          add(who, "get", {to, word_value(kGetForms, "recv"), 8192, MSG_DONTWAIT});
      add(who, "dup2", {slot, to, way});
    }
    forget(who, to);
    meaning(who, to) = same;
    actor(who).process->close_on_exec[static_cast<std::size_t>(to)] = false;
  }

  void ask(int who) {
    const int slot = chance(80) ? slot_of(who, Thing::kStream) : any_slot(who);
    if (slot == kNoSlot) return;
    switch (below(7)) {
      case 0:
        return add(who, "waiting_bytes", {slot});
      case 1:
        return add(who, "getsockname", {slot});
      case 2:
        return add(who, "getpeername", {slot});
      case 3:
        return add(who, "getsockopt", {slot, word_value(kOptions, "ERROR")});
      case 4:
        return add(who, "flags", {slot});
      case 5:
        return add(who, "state", {slot});
      default:
        return add(who, "getsockopt", {slot, any_word(kOptions)});
    }
  }

  void set_option(int who) {
    const int slot = any_slot(who);
    if (slot == kNoSlot) return;
    const Meaning at = meaning(who, slot);
    switch (below(6)) {
      case 0:
        return add(who, "linger", {slot, chance(80) ? 1 : 0});
      case 1:
        return add(who, "timeout", {slot, 1 + below(2)});
      case 2:
      case 3: {
        const int on = below(2);
        if (at) at->nonblocking = on != 0;
        return add(who, "nonblocking", {slot, on, below(2)});
      }
      case 4:
        actor(who).process->close_on_exec[static_cast<std::size_t>(slot)] = chance(50);
        return add(
            who, "close_on_exec",
            {slot, actor(who).process->close_on_exec[static_cast<std::size_t>(slot)] ? 1 : 0});
      default: {
        const int option = any_word(kOptions);
        if (is_left_out(option)) return;
        return add(who, "setsockopt", {slot, option, below(3)});
      }
    }
  }

  void move_bytes(int who) {
    const int stream = slot_of(who, Thing::kStream);
    if (stream == kNoSlot) return;
    switch (below(4)) {
      case 0:
        if (const int file = slot_of(who, Thing::kFile); file != kNoSlot)
          add(who, "sendfile", {stream, file, below(400), below(400)});
        break;
      case 1:
        if (const int pipe = slot_of(who, Thing::kPipeReader); pipe != kNoSlot)
          add(who, "splice", {pipe, stream, 1 + below(1000)});
        break;
      case 2:
        if (const int pipe = slot_of(who, Thing::kPipeWriter);
            pipe != kNoSlot &&
            (meaning(who, stream)->unread > 0 || meaning(who, stream)->nonblocking))
          add(who, "splice", {stream, pipe, 1 + below(1000)});
        break;
      default:
        add(who, "stream", {stream, some_bytes()});
        forget(who, stream);
    }
  }

  int new_actor() {
    for (int i = 2; i < kActors; ++i)
      if (!model_.actors[static_cast<std::size_t>(i)].process) return i;
    return kNoActor;
  }

  void processes(int who) {
    const int fresh = new_actor();
    const int what = below(100);
    ModelActor& parent = actor(who);
    if (what < 60 && fresh != kNoActor) {
      ModelActor& child = actor(fresh);
      child.alive = true;
      if (what < 25) {
        add(who, "fork", {fresh});
        child.process = std::make_shared<ModelProcess>(*parent.process);
      } else if (what < 40) {
        add(who, "spawn", {fresh, any_word(kSpawnWays)});
        child.process = after_exec(*parent.process);
      } else {
        add(who, "thread", {fresh});
        child.process = parent.process;
        child.is_thread = true;
        parent.has_threads = true;
        return;
      }
      parent.process->children++;
      return;
    }
    if (what < 70) {
      add(who, "exec");
      leave_threads(who);
      auto kept = after_exec(*parent.process);
      clear(*parent.process);
      parent.process = kept;
      parent.is_thread = false;
      return;
    }
    if (what < 80) {
      int left = 0;
      for (const ModelActor& one : model_.actors) left += one.alive ? 1 : 0;
      if (left < 2 || (who < 2 && !chance(30))) return;
      if (parent.is_thread) {
        add(who, "exit", {word_value(kExitWays, "thread")});
        parent.alive = false;
        return;
      }
      if (chance(50)) {
        add(who, "kill");
      } else {
        add(who, "exit", {below(2)});
      }
      ended(who);
      return;
    }
    if (what < 88) {
      if (parent.process->children == 0) return;
      for (const ModelActor& one : model_.actors)
        if (!one.alive && one.process && !one.is_thread) {
          add(who, "wait");
          parent.process->children--;
          return;
        }
      return;
    }
    // Stopped for some steps.
    for (int i = 0; i < kActors; ++i) {
      if (!actor(i).alive || !actor(i).stopped) continue;
      add(i, "continue");
      set_stopped(i, false);
      return;
    }
    if (chance(50)) return;
    int awake = 0;
    for (const ModelActor& one : model_.actors)
      awake += one.alive && !one.stopped && one.process != parent.process ? 1 : 0;
    if (awake == 0) return;
    add(who, "stop");
    set_stopped(who, true);
  }
  void set_stopped(int who, bool stopped) {
    for (ModelActor& one : model_.actors)
      if (one.process == actor(who).process) one.stopped = stopped;
  }
  std::shared_ptr<ModelProcess> after_exec(const ModelProcess& before) {
    auto after = std::make_shared<ModelProcess>();
    for (std::size_t i = 0; i < kSlots; ++i)
      if (!before.close_on_exec[i]) after->slots[i] = before.slots[i];
    return after;
  }
  void clear(ModelProcess& process) {
    for (Meaning& one : process.slots) {
      Meaning gone = std::move(one);
      one.reset();
      settle(gone);
    }
  }
  // exec leaves the thread that calls it.
  void leave_threads(int who) {
    for (int i = 0; i < kActors; ++i)
      if (i != who && actor(i).process == actor(who).process) actor(i).alive = false;
  }
  void ended(int who) {
    const auto process = actor(who).process;
    for (ModelActor& one : model_.actors)
      if (one.process == process) one.alive = false;
    clear(*process);
  }

  void signals(int who) {
    ModelActor& one = actor(who);
    if (one.process->handles && chance(70)) {
      // To whomever of that process, also to one that sleeps.
      for (int i = 0; i < kActors; ++i)
        if (actor(i).alive && !actor(i).stopped && actor(i).process == one.process && chance(60))
          who = i;
      add(who, "signal");
      return;
    }
    if (chance(20)) {
      add(who, "handle",
          {word_value(kSignals, "PIPE"),
           word_value(kHandlerActions, chance(80) ? "ignore" : "default"), kNoSlot < 0 ? 0 : 0, 0});
      return;
    }
    const int slot = slot_of(who, Thing::kStream);
    if (slot == kNoSlot) return;
    static constexpr const char* kActions[] = {"nothing", "get", "put", "close"};
    add(who, "handle",
        {word_value(kSignals, "USR1"), word_value(kHandlerActions, kActions[below(4)]), slot,
         below(2)});
    one.process->handles = true;
  }

  void pass_one(int who) {
    const int through = slot_of(who, Thing::kUnix);
    if (through == kNoSlot) return;
    const Meaning pair = meaning(who, through);
    if (pair->passed) {
      const int slot = free_slot(who);
      add(who, "take", {through, slot});
      forget(who, slot);
      meaning(who, slot) = std::move(pair->passed);
      return;
    }
    const int passed = any_slot(who);
    const Meaning peer = pair->peer.lock();
    if (passed == kNoSlot || !peer || !meaning(who, passed) ||
        meaning(who, passed)->thing == Thing::kUnix)
      return;
    add(who, "pass", {through, passed});
    peer->passed = meaning(who, passed);
  }

  void look(int who) { add(who, "look"); }

  void end_with_look() {
    for (int i = 0; i < kActors; ++i)
      if (actor(i).alive && !actor(i).is_thread && !actor(i).stopped) add(i, "look");
  }

  static constexpr int kNoActor = -1;
  std::mt19937_64 random_;
  const Taste& taste_;
  Script script_;
  Model model_;
  int sleepers_ = 0;
  int newest_ = kNoSlot;
};

}  // namespace

Script generate(std::uint64_t seed, const Taste& taste) { return Generator(seed, taste).script(); }

}  // namespace posix_fuzz
