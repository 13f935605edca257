#include "preload/end_state.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <new>

#include "preload/hidden.h"
#include "preload/kept_memory.h"
#include "preload/pool.h"
#include "preload/shared_memory.h"

namespace leat::preload {
namespace {

thread_local std::uint32_t kept_thread_id = 0;
std::atomic<std::uint32_t> kept_process_id{0};
thread_local std::uint32_t jumps = 0;

constexpr std::size_t kStates = 128;
constexpr std::uint32_t kStateMagic = 0x73646e65;

struct Memory {
  std::uint32_t magic;
  std::uint32_t version;
  std::array<EndState, kStates> states;
};

}  // namespace

// Some states of one process. This itself is private to each process that has the memory mapped:
// only the one that made it hands states out, and only until it forks.
struct EndArena {
  std::atomic<EndArena*> next_free{nullptr};
  // The holds of connections, and one as long as it is the current one; 0: in the pool.
  std::atomic<std::uint32_t> users{0};
  Memory* memory = nullptr;
  int memfd = -1;
  std::uint32_t generation = 0;  // memory_generation() of its making; 0: another process's
  std::array<std::atomic<std::uint64_t>, kStates / 64> used{};

  // False: it is being given back.
  bool enter() noexcept {
    std::uint32_t count = users.load(std::memory_order_relaxed);
    // Acquire: with the count we see the memory.
    while (count != 0 &&
           !users.compare_exchange_weak(count, count + 1, std::memory_order_acquire)) {
    }
    return count != 0;
  }

  EndState* claim() noexcept {
    for (std::size_t word = 0; word < used.size(); ++word) {
      std::uint64_t bits = used[word].load(std::memory_order_relaxed);
      while (~bits != 0) {
        const unsigned bit = static_cast<unsigned>(__builtin_ctzll(~bits));
        // Acquire, with the release of drop(): its last user is done with it.
        if (used[word].compare_exchange_weak(bits, bits | (std::uint64_t{1} << bit),
                                             std::memory_order_acquire))
          return &memory->states[word * 64 + bit];
      }
    }
    return nullptr;
  }

  void drop(const EndState* state) noexcept {
    const auto index = static_cast<std::size_t>(state - memory->states.data());
    used[index / 64].fetch_and(~(std::uint64_t{1} << index % 64), std::memory_order_release);
  }
};

namespace {

constinit Pool<EndArena> arenas;
std::atomic<EndArena*> current{nullptr};

void leave(EndArena* arena) noexcept {
  // Acquire-release: the last one sees that all others are done.
  if (arena->users.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  munmap(arena->memory, sizeof(Memory));
  close_hidden(arena->memfd);
  arena->memory = nullptr;
  arena->memfd = -1;
  arenas.give(arena);
}

EndArena* hold_memory(void* memory, int memfd, std::uint32_t generation) noexcept {
  EndArena* arena = arenas.take();
  if (arena == nullptr) return nullptr;
  arena->memory = static_cast<Memory*>(memory);
  arena->memfd = memfd;
  arena->generation = generation;
  for (auto& word : arena->used) word.store(0, std::memory_order_relaxed);
  arena->users.store(1, std::memory_order_release);
  return arena;
}

EndArena* make_arena() noexcept {
  int memfd = -1;
  void* memory = new_sealed_memory("leat-ends", sizeof(Memory), memfd);
  if (memory == nullptr) return nullptr;
  auto* header = static_cast<Memory*>(memory);
  header->magic = kStateMagic;
  header->version = kMemoryVersion;
  const int hidden = hide(memfd);
  EndArena* arena = hold_memory(memory, hidden, memory_generation());
  if (arena != nullptr) return arena;
  munmap(memory, sizeof(Memory));
  close_hidden(hidden);
  return nullptr;
}

}  // namespace

std::uint32_t thread_id() noexcept {
  if (kept_thread_id == 0) [[unlikely]]
    kept_thread_id = static_cast<std::uint32_t>(gettid());
  return kept_thread_id;
}

void forget_thread_id() noexcept { kept_thread_id = 0; }

std::uint32_t process_id() noexcept {
  // Relaxed: a thread that finds none asks the kernel for the same.
  std::uint32_t id = kept_process_id.load(std::memory_order_relaxed);
  if (id == 0) [[unlikely]] {
    id = static_cast<std::uint32_t>(getpid());
    kept_process_id.store(id, std::memory_order_relaxed);
  }
  return id;
}

void forget_process_id() noexcept { kept_process_id.store(0, std::memory_order_relaxed); }

void note_jump() noexcept { ++jumps; }

void EndLock::begin() noexcept {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
  pthread_mutex_init(&mutex_, &attributes);
  pthread_mutexattr_destroy(&attributes);
  holder_.store(0, std::memory_order_relaxed);
}

bool EndLock::held_here() const noexcept {
  return holder_.load(std::memory_order_relaxed) == thread_id() &&
         jumps_.load(std::memory_order_relaxed) == jumps;
}

// Whether this thread left the call that took the lock by longjmp(), so that it is free for this
// one.
bool EndLock::take_over() noexcept {
  if (holder_.load(std::memory_order_relaxed) != thread_id() || held_here()) return false;
  jumps_.store(jumps, std::memory_order_relaxed);
  return true;
}

bool EndLock::finish(int error) noexcept {
  if (error == EOWNERDEAD) {
    // The holder died; what it was writing is published only as a whole.
    pthread_mutex_consistent(&mutex_);
    error = 0;
  }
  if (error != 0) return take_over();
  holder_.store(thread_id(), std::memory_order_relaxed);
  jumps_.store(jumps, std::memory_order_relaxed);
  return true;
}

bool EndLock::lock() noexcept { return finish(pthread_mutex_lock(&mutex_)); }

bool EndLock::try_lock() noexcept { return finish(pthread_mutex_trylock(&mutex_)); }

void EndLock::unlock() noexcept {
  holder_.store(0, std::memory_order_relaxed);
  pthread_mutex_unlock(&mutex_);
}

void EndState::begin() noexcept {
  send_lock.begin();
  receive_lock.begin();
  listener.begin();
  tcp.flags.store(0, std::memory_order_relaxed);
  tcp.error.store(0, std::memory_order_relaxed);
  full.store(0, std::memory_order_relaxed);
  shutdowns.store(0, std::memory_order_relaxed);
  turn.store(0, std::memory_order_relaxed);
  others.store(0, std::memory_order_relaxed);
  senders_asleep.store(0, std::memory_order_relaxed);
  strange.store(0, std::memory_order_relaxed);
  cookie.store(0, std::memory_order_relaxed);
}

EndHold new_end() noexcept {
  EndArena* arena = current.load(std::memory_order_acquire);
  for (;;) {
    if (arena != nullptr && arena->enter()) {
      EndState* state = arena->generation == memory_generation() ? arena->claim() : nullptr;
      if (state != nullptr) {
        state->begin();
        return {state, arena};
      }
      leave(arena);
    }
    EndArena* fresh = make_arena();
    if (fresh == nullptr) return {};
    EndArena* before = arena;
    // Release: a thread that finds it sees its memory.
    if (current.compare_exchange_strong(arena, fresh, std::memory_order_acq_rel)) {
      if (before != nullptr) leave(before);
      arena = fresh;
    } else {
      leave(fresh);
    }
  }
}

void release_end(EndHold hold, bool shared) noexcept {
  if (hold.arena == nullptr) return;
  if (!shared && hold.arena->generation == memory_generation()) hold.arena->drop(hold.state);
  leave(hold.arena);
}

int memfd_of(const EndHold& hold) noexcept {
  return hold.arena != nullptr ? hold.arena->memfd : -1;
}

bool is_end_memory(int fd) noexcept {
  struct stat status {};
  std::array<std::uint32_t, 2> header{};
  return is_sealed(fd) && fstat(fd, &status) == 0 &&
         status.st_size == static_cast<off_t>(sizeof(Memory)) &&
         pread(fd, header.data(), sizeof(header), 0) == sizeof(header) &&
         header[0] == kStateMagic && header[1] == kMemoryVersion;
}

AdoptedEnds::AdoptedEnds(int memfd) noexcept {
  if (memfd < 0 || !is_end_memory(memfd)) {
    close_hidden(memfd);
    return;
  }
  void* memory =
      mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memfd, 0);
  arena_ = memory == MAP_FAILED ? nullptr : hold_memory(memory, memfd, 0);
  if (arena_ == nullptr) close_hidden(memfd);
}

AdoptedEnds::~AdoptedEnds() {
  if (arena_ != nullptr) leave(arena_);
}

EndHold AdoptedEnds::find(std::uint64_t cookie) const noexcept {
  if (arena_ == nullptr || cookie == 0) return {};
  for (EndState& state : arena_->memory->states) {
    if (state.cookie.load(std::memory_order_relaxed) == cookie && arena_->enter())
      return {&state, arena_};
  }
  return {};
}

}  // namespace leat::preload
