// What the generator believes of a script's processes and descriptors. It need not be right: it
// makes scripts that get somewhere, and keeps them from what TCP leaves open.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "script.h"

namespace posix_fuzz {

enum class Thing {
  kNothing,
  kSocket,  // neither bound nor connected
  kListener,
  kStream,  // a connection of TCP
  kFile,
  kPipeReader,
  kPipeWriter,
  kUnix,
  kEventfd,
  kEpoll,
};

// What descriptors mean: one for all copies.
struct Described {
  Thing thing = Thing::kNothing;
  int family = 0;
  int place = -1;  // kListener, or bound
  int unread = 0;  // bytes that wait here
  bool nonblocking = false;
  bool over = false;    // nothing more comes: the other end is closed or shut
  bool urgent = false;  // an urgent byte may wait
  bool in_set = false;  // was added to a set of epoll
  bool edge = false;    // and with EPOLLET
  bool sent = false;    // kFile: by sendfile
  bool copied = false;  // has, or had, several numbers in one process
  int queued = 0;       // kListener: connections that nobody has accepted; kUnix: descriptors
  std::vector<std::weak_ptr<Described>> callers;  // kListener: of those
  std::weak_ptr<Described> peer;
  std::shared_ptr<Described> passed;  // kUnix: the descriptor in flight
};
using Meaning = std::shared_ptr<Described>;

struct ModelProcess {
  std::array<Meaning, kSlots> slots;
  std::array<bool, kSlots> close_on_exec{};
  bool handles = false;  // SIGUSR1
  int handler_closes = kNoSlot;
  bool hears_loader = false;  // its standard error is not what it was
  bool has_few_numbers = false;
  int children = 0;
};

struct ModelActor {
  bool alive = false;
  bool asleep = false;                   // perhaps
  std::weak_ptr<Described> received_at;  // where it may have slept last
  bool stopped = false;
  bool is_thread = false;
  bool has_threads = false;
  std::shared_ptr<ModelProcess> process;
};

struct Model {
  std::array<ModelActor, kActors> actors;
  std::array<std::weak_ptr<Described>, kPlaces> places;
};

}  // namespace posix_fuzz
