// What this library knows of the program's descriptors.
#pragma once

#include <netinet/tcp.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "preload/connection.h"
#include "preload/meeting_folder.h"

namespace leat::preload {

class EpollSet;

enum class Kind : std::uint8_t {
  kFree,
  kSocket,      // of TCP, not decided yet
  kListener,    // of TCP, where leat's connections are accepted
  kConnection,  // carried
  kEpoll,
  kOwn,  // ours: the program can neither close nor see it
};

// What one or several descriptors (dup) stand for. Lives in a pool whose memory is never given
// back, so that a look at one that is just being freed is harmless: references() tells.
struct Object {
  std::atomic<std::uint32_t> references{0};
  std::atomic<int> numbers{0};  // how many descriptors mean it
  std::atomic<Kind> kind{Kind::kFree};
  std::atomic<bool> connecting{false};  // kSocket: not decided yet whether it is carried
  std::atomic<bool> in_connect{false};  // kSocket: a thread is in connect(), or was when it ended
  int meeting_fd = -1;                  // kListener: where offers arrive; kSocket: to offer by
  unsigned code = 0;                    // kListener; kOwn: 1 if the program misses its number
  uid_t owner = 0;                      // kListener: who called listen(); kConnection: the peer
  std::uint16_t port = 0;               // kListener
  std::atomic<int> receive_buffer{0};   // kListener: what the program set since listen()
  std::atomic<int> deferred{0};         // kListener: the program's TCP_DEFER_ACCEPT
  std::atomic<int> max_segment{0};      // kListener: the program's TCP_MAXSEG
  // kSocket, accepted: a counted listener where its offer will come, from whom, and of which user.
  Object* awaited_at = nullptr;
  Address connector;
  unsigned connector_code = 0;
  FolderPlaces places;  // kSocket, connecting: where its offer may be left, if in a folder
  std::atomic<bool> in_folder{false};  // kSocket: meets there, and kConnection: has met there
  // The process whose thread decides, or looks for the offer: a child that was forked meanwhile has
  // no such thread. 0: no process.
  std::atomic<std::uint32_t> deciding{0};
  std::atomic<bool> forked{false};  // meanwhile: another process waits for the same offer
  std::atomic<bool> shut{false};    // meanwhile by the program, for sending
  // When it was first seen that the offer must be there, in ns of the steady clock; 0: not yet.
  std::atomic<std::int64_t> due{0};
  // The kernel's file behind the descriptors: tells a number that means another file by now.
  std::uint64_t file = 0;
  Connection connection;  // kConnection
  // kConnection, made in this process: memory_generation() then; 0: another process may have it.
  std::uint32_t made_at = 0;
  EpollSet* set = nullptr;  // kEpoll
  // In the pool. Atomic: a thread that loses the race for an object may read it from the new
  // owner's.
  std::atomic<Object*> next_free{nullptr};
};

// A counted reference. Empty: leat knows nothing of that descriptor, which is the kernel's alone.
class Reference {
 public:
  Reference() noexcept = default;
  explicit Reference(Object* object) noexcept : object_(object) {}
  Reference(Reference&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Reference& operator=(Reference&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Reference();

  explicit operator bool() const noexcept { return object_ != nullptr; }
  Object* operator->() const noexcept { return object_; }
  Object& operator*() const noexcept { return *object_; }
  Object* get() const noexcept { return object_; }
  // Acquire, with the release of become(): a thread that sees the kind sees its fields.
  Kind kind() const noexcept {
    return object_ == nullptr ? Kind::kFree : object_->kind.load(std::memory_order_acquire);
  }
  bool is(Kind kind_) const noexcept { return kind() == kind_; }
  // Of TCP, but not decided yet.
  bool is_undecided() const noexcept {
    return is(Kind::kSocket) && object_->connecting.load(std::memory_order_acquire);
  }
  // Nothing can be decided in this state of the kernel's socket: its handshake is not over, or is
  // still to begin in another thread, or in the one that a signal's handler has interrupted.
  bool is_to_connect(unsigned state) const noexcept {
    return state == TCP_SYN_SENT || state == TCP_SYN_RECV ||
           (state == TCP_CLOSE && object_->in_connect.load(std::memory_order_relaxed));
  }
  // The same, and accepted: the program takes it for connected, but no byte may go to the kernel.
  bool awaits_offer() const noexcept { return is_undecided() && object_->awaited_at != nullptr; }

 private:
  Object* object_ = nullptr;
};

inline constexpr int kMostDescriptors = 1 << 20;
// Zero from the start, also for constructors of other libraries; untouched pages cost nothing.
extern Object* descriptor_table[kMostDescriptors];
inline std::atomic_ref<Object*> descriptor_entry(int fd) noexcept {
  return std::atomic_ref<Object*>(descriptor_table[fd]);
}

Reference acquire(int fd) noexcept;

// The hot look: empty at the price of one load for descriptors that are not ours.
inline Reference find(int fd) noexcept {
  if (fd < 0 || fd >= kMostDescriptors) return {};
  // Relaxed: acquire() looks again with order.
  if (descriptor_entry(fd).load(std::memory_order_relaxed) == nullptr) [[likely]]
    return {};
  return acquire(fd);
}

// The same, for calls that act on what the descriptor stands for: asks the kernel, one system call,
// whether the number still means the file that is known. If not, the program closed it out of our
// sight: it is forgotten, and the result is empty. So nothing else is ever taken for a connection.
Reference find_current(int fd) noexcept;
// Whether the number is known for this, as far as the program said so. The object is only compared.
inline bool means(int fd, const Object& object) noexcept {
  return fd >= 0 && fd < kMostDescriptors &&
         descriptor_entry(fd).load(std::memory_order_relaxed) == &object;
}
// Whether the number means the kernel's file that the object stands for.
bool is_current(int fd, const Object& object) noexcept;
// If not: forgets it. False: that is done already, as after a close in our sight.
bool forget_lost(int fd, const Object& object) noexcept;

// A new object for `fd`, in place of what was known. Empty if memory has run out.
// Async-signal-safe, as what follows.
Reference add(int fd, Kind kind) noexcept;
// Another descriptor than `fd` that means the same object, or -1.
int another(const Object& object, int fd) noexcept;
// Both descriptors mean the same from now on; forgets what `to` meant.
void add_duplicate(int from, int to) noexcept;
void forget(int fd) noexcept;

// Calls `visit(fd, object)` for every known descriptor in [first, last].
template <typename Visit>
void for_each(int first, int last, Visit visit);

int highest_known() noexcept;
template <typename Visit>
void for_each(int first, int last, Visit visit) {
  for (int fd = first; fd <= last && fd <= highest_known(); ++fd) {
    if (Reference object = find(fd)) visit(fd, object);
  }
}

}  // namespace leat::preload
