// A group of one master and its workers, over any transport: broadcast, gather, many-to-one
// messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "leat/channel.h"
#include "leat/export.h"
#include "leat/held.h"
#include "leat/listener.h"
#include "leat/options.h"
#include "leat/stats.h"

namespace leat {

namespace detail {
class GroupCore;
}

inline constexpr unsigned kMaxWorkers = 1024;

// Tells that a worker is gone, and why. Plain value.
struct WorkerEnd {
  unsigned worker = 0;                    // the worker's rank
  bool in_order = false;                  // it ended its side; false: it died or was dropped
  ErrorCode code = ErrorCode::kPeerDied;  // if not in order; kClosed: dropped
  std::string reason;                     // one sentence
};

// What a worker has for the master: a message, or, if the worker is gone, its end. The master owns
// `end`, which stays valid for the master's lifetime.
struct GroupMessage {
  unsigned worker = 0;  // the worker's rank
  Message message;
  const WorkerEnd* end = nullptr;

  // False: all workers are gone, and nothing more can come.
  explicit operator bool() const noexcept { return message || end != nullptr; }
};

// Returns options for a Listener whose group of `workers` uses transport batched or confirm-each:
// slots of such size and number that the slots of all connections together take at most `bytes` of
// the master's memory, whatever the workers send (Stats::slot_memory_bytes). It first lowers the
// number of slots below that of `options` or the default, then their size. Devices other than shm
// may need the memory twice; that is counted unless the option `device` allows only "shm". Throws
// kInvalidArgument, naming the least memory that suffices, if `bytes` is less.
LEAT_EXPORT Options with_slot_memory(std::size_t bytes, unsigned workers,
                                     const Options& options = {});

// The master's end of a group: a connection to each of n workers, whose ranks are 0 to n - 1.
//
// A worker that ends or dies never disturbs the others. Its end is reported once, after the last
// message that came from it, by the first of these calls: receive(), try_receive(), the first
// gather() that lacks it, or next_end().
//
// Owner: the caller that made it; move-only. A process may have any number of groups. Threads: as
// for Channel, one thread may send (broadcast, resume, send, flush, shutdown) while another
// receives (receive, try_receive, gather, next_end, and the use of their messages); each side
// admits one thread at a time. All other calls may come from any thread, but not while the group is
// being destroyed or moved. Processes: as for Channel, a group belongs to the process that made it.
// Errors: leat::Error. kTimeout, naming the workers that are missing, when a call has blocked for
// the option `timeout`; kPeerDied from broadcast() and gather() once no worker is left; kClosed
// after close(); kTooLarge; kInvalidArgument for a rank outside the group. A failure of a single
// worker becomes that worker's end; only send() throws it.
class LEAT_EXPORT GroupMaster {
 public:
  // Waits at `listener` until `workers` (1 to kMaxWorkers) have connected, at most for the
  // listener's option `connect_timeout`; then throws kTimeout, which names the missing ranks (if no
  // worker without a rank of its own has come) and the last client turned away. Turned away, with
  // the reason in the log and in their answer, are strangers, workers that ask for a rank that is
  // taken or too high, and workers that expect a group of another size; none of them delays the
  // others. Another worker may replace one that leaves before the group is complete. Afterwards the
  // listener is free for the next group.
  static GroupMaster accept(Listener& listener, unsigned workers);

  GroupMaster(GroupMaster&&) noexcept;
  GroupMaster& operator=(GroupMaster&&) noexcept;
  ~GroupMaster();  // close()

  // Sends one message to every worker that is not gone, and returns their number. Sends to all of
  // them side by side, large messages in pieces, so that a slow worker delays only the return.
  // Blocks until all have taken the message; then the caller may reuse its bytes. After kTimeout
  // the quick workers have the message: call resume() for the others, or drop() them. Until then no
  // other broadcast can begin, and no send() to one of those.
  // As with sockets, a deadlock is possible: a worker that waits for room to send, and so does not
  // receive, and a single-threaded master that does the same wait for each other.
  std::size_t broadcast(std::span<const std::byte> message);
  std::size_t broadcast(std::string_view message);
  // Continues the broadcast that timed out, with the same message (kInvalidArgument for another).
  // Returns how many workers have it in all; returns at once if no worker lacks it.
  std::size_t resume(std::span<const std::byte> message);
  // The workers that have not taken the broadcast that timed out. Send side.
  std::vector<unsigned> unreached() const;
  // Sends to one worker, as Channel::send(). Throws kPeerDied if that worker is gone.
  void send(unsigned worker, std::span<const std::byte> message);
  void send(unsigned worker, std::string_view message);
  // Blocks until everything sent is in the workers' memory (transport tcp: until Linux has it).
  // Needed only before long computations.
  void flush();
  // Tells the workers that no more messages will follow. Receiving goes on. Blocks as flush() does.
  // Throws kInvalidArgument while a broadcast that timed out is unfinished.
  void shutdown();

  // Returns one message of each worker; element i is from worker i. Blocks until all are there. For
  // a worker that is gone the element holds `end` instead, in this gather and in every later one.
  // After kTimeout nothing is lost: the next gather() continues, and receive() returns what has
  // arrived.
  [[nodiscard]] std::vector<GroupMessage> gather();
  // The workers of which the last gather(), having timed out, has no message. Receive side.
  std::vector<unsigned> unheard() const;
  // Returns the next message of any worker, or the next end; blocks. Returns false once all workers
  // are gone and all their ends were reported. Workers with waiting messages take turns, one
  // message each, so that each waits for at most one message of every other.
  [[nodiscard]] GroupMessage receive();
  // The same without blocking: no value if nothing is there yet.
  [[nodiscard]] std::optional<GroupMessage> try_receive();
  // Returns an end that was not reported yet, or null if there is none: for masters that do not
  // receive. It may report a worker whose last messages are still to be received.
  [[nodiscard]] const WorkerEnd* next_end();

  // Drops a worker: ends its connection at once, so that the worker gets kPeerDied. This end is not
  // reported, but end() returns it.
  void drop(unsigned worker, const std::string& reason);
  // Ends all connections, as Channel::close() does.
  void close() noexcept;

  unsigned size() const;   // n
  unsigned alive() const;  // workers not known to be gone
  // Null while that worker is not known to be gone; else valid for this master's lifetime.
  const WorkerEnd* end(unsigned worker) const;
  // The largest message that every worker accepts, in bytes.
  std::size_t max_message_bytes() const;

  // The channel to one worker, for its statistics and addresses, and for the contexts 1 to 15,
  // which the group does not use.
  Channel& channel(unsigned worker);
  // The sum over all workers.
  Stats stats() const;
  // A line for the group, and one for each worker.
  std::string describe() const;

 private:
  explicit GroupMaster(std::unique_ptr<detail::GroupCore> core) noexcept;

  detail::Held<std::unique_ptr<detail::GroupCore>> core_;
};

// What a worker may ask for. Every field may be left empty.
struct GroupWorkerOptions {
  std::optional<unsigned> rank;  // default: the lowest free rank, in order of arrival
  std::optional<unsigned> size;  // the number of workers that the group must have
  // As for Channel::connect(), except that connect_retry is on, so that master and workers may
  // start in any order, and connect_timeout (default 10 s) runs until the group is complete.
  Options options;
};

// A worker's end of a group: a Channel to the master, and the worker's rank. Owner, threads,
// processes and errors are those of Channel.
class LEAT_EXPORT GroupWorker {
 public:
  // Connects to the master's listener and blocks until the group is complete. Throws as
  // Channel::connect(); kInvalidArgument, with the master's reason, if the master turns this worker
  // away; kTimeout if the group is not complete in time; kPeerDied if the master gave up.
  static GroupWorker connect(const std::string& address, const GroupWorkerOptions& options = {});

  unsigned rank() const noexcept { return rank_; }
  unsigned size() const noexcept { return size_; }

  void send(std::span<const std::byte> message) { channel_.send(message); }
  void send(std::string_view message) { channel_.send(message); }
  // The next message that the master sent or broadcast; false once the master has ended.
  [[nodiscard]] Message receive() { return channel_.receive(); }
  [[nodiscard]] std::optional<Message> try_receive() { return channel_.try_receive(); }

  // For all other calls: flush, shutdown, close, stats, reserve. Context 0 belongs to the group.
  Channel& channel() noexcept { return channel_; }

 private:
  GroupWorker(Channel channel, unsigned rank, unsigned size) noexcept
      : channel_(std::move(channel)), rank_(rank), size_(size) {}

  Channel channel_;
  unsigned rank_;
  unsigned size_;
};

}  // namespace leat
