// One master and its workers: broadcast, gather, and many-to-one messages, over any transport.
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
#include "leat/listener.h"
#include "leat/options.h"
#include "leat/stats.h"

namespace leat {

namespace detail {
class GroupCore;
}

inline constexpr unsigned kMaxWorkers = 1024;

// That a worker is gone, and why. Plain value.
struct WorkerEnd {
  unsigned worker = 0;    // its rank
  bool in_order = false;  // it shut down or closed its side; else it died, or was dropped
  ErrorCode code = ErrorCode::kPeerDied;  // if not in order
  std::string reason;                     // a sentence
};

// What comes from a worker: a message; or none, because the worker is gone, and then `end` says
// why. The end belongs to the master and stays valid as long as that does.
struct GroupMessage {
  unsigned worker = 0;  // its rank
  Message message;
  const WorkerEnd* end = nullptr;

  // False: no worker is left from whom anything could come.
  explicit operator bool() const noexcept { return message || end != nullptr; }
};

// `options` for a Listener whose group of `workers` is to use transport batched or confirm-each:
// slots so large and so many that all connections together take at most `bytes` of slots at the
// master, whatever is sent (Stats::slot_memory_bytes). Slots become fewer than the options or their
// defaults say, then smaller. Devices other than shm may need the memory twice, which is counted
// unless the option `device` is "shm". Throws kInvalidArgument, saying what is needed at least, if
// that is not enough.
LEAT_EXPORT Options with_slot_memory(std::size_t bytes, unsigned workers,
                                     const Options& options = {});

// The master's end of a group: a connection with each of n workers, whose ranks are 0 to n - 1.
//
// A worker that ends or dies never disturbs the others. Its end is reported once, after the last
// message that came from it: by receive() or try_receive(), by the gather() in which it is missing
// for the first time, or by next_end(), whichever is called first.
//
// Owner: whoever made it; move-only. A process may have any number of groups. Threads: as Channel:
// one thread may send (broadcast, resume, send, flush, shutdown) while another receives (receive,
// try_receive, gather, next_end and the messages that these gave); each side by itself is for one
// thread at a time. All other calls are for any thread that does not run at the same time as a
// destructor or a move. Processes: it stays with the process that made it, as a Channel.
// Errors: leat::Error. kTimeout, naming the workers that are waited for, at the option `timeout`;
// kPeerDied once no worker is left; kClosed after close(); kTooLarge; kInvalidArgument for a rank
// that there is not. What goes wrong with a single worker is that worker's end and no error, except
// in send().
class LEAT_EXPORT GroupMaster {
 public:
  // Waits at `listener` until `workers` (1 to kMaxWorkers) have come, for its option
  // connect_timeout at most (then kTimeout, saying who is missing and who was turned away).
  // Strangers, workers that ask for a rank that is taken or too high, and those that expect a group
  // of another size are told so and logged; they hold up nobody. A worker that goes away before all
  // are here may be replaced. Afterwards the listener is free for the next group, or to be closed.
  static GroupMaster accept(Listener& listener, unsigned workers);

  GroupMaster(GroupMaster&&) noexcept;
  GroupMaster& operator=(GroupMaster&&) noexcept;
  ~GroupMaster();  // close()

  // Sends one message to every worker that is not gone; returns to how many. The bytes go to all
  // at the same time, large messages in pieces, so that a slow worker delays only the return.
  // Blocks until all have taken it: the bytes are the caller's again on return. After kTimeout the
  // workers that were quick have it; resume() it for the others, or drop() those: until then no
  // other broadcast begins, nor a send to one of them.
  // As with sockets: a worker that does not receive because it waits for room to send, and a master
  // of one thread that does the same, wait for each other.
  std::size_t broadcast(std::span<const std::byte> message);
  std::size_t broadcast(std::string_view message);
  // Goes on with the broadcast that timed out, of the same message; returns how many have it in
  // all. Returns at once if nobody is unreached.
  std::size_t resume(std::span<const std::byte> message);
  // The workers that have not taken the broadcast that timed out. Send side.
  std::vector<unsigned> unreached() const;
  // To one worker, as Channel::send. kPeerDied if that worker is gone.
  void send(unsigned worker, std::span<const std::byte> message);
  void send(unsigned worker, std::string_view message);
  // Blocks until everything sent is in the workers' memory (transport tcp: handed to the kernel).
  // Needed only before long computations.
  void flush();
  // Says the workers that nothing more comes. Receiving goes on.
  void shutdown();

  // One message of each worker: element i is from worker i. Blocks until all are here. Workers that
  // are gone have an element with `end` instead, in this gather and in every later one. After
  // kTimeout nothing is lost: the next gather goes on, and receive() gives what was here already.
  [[nodiscard]] std::vector<GroupMessage> gather();
  // The workers of whom the last gather, which timed out, had nothing. Receive side.
  std::vector<unsigned> unheard() const;
  // The next message of any worker, or the next end; blocks. False once all workers are gone and
  // all ends were reported. Workers that have something take turns, message by message, so that
  // none waits for more than one of each other.
  [[nodiscard]] GroupMessage receive();
  // The same without blocking: no value if there is nothing now.
  [[nodiscard]] std::optional<GroupMessage> try_receive();
  // An end that was not reported yet, null if there is none: for masters that do not receive. May
  // tell of a worker whose last messages are still to be received.
  [[nodiscard]] const WorkerEnd* next_end();

  // Gives a worker up: ends its connection at once, so that it gets kPeerDied. Its end is not
  // reported.
  void drop(unsigned worker, const std::string& reason);
  // Ends all connections; never blocks. As Channel::close().
  void close() noexcept;

  unsigned size() const noexcept;   // n
  unsigned alive() const noexcept;  // workers not known to be gone
  // Null while that worker is not known to be gone. Valid as long as this master.
  const WorkerEnd* end(unsigned worker) const;
  // The largest message that every worker takes.
  std::size_t max_message_bytes() const;

  // For its statistics and addresses, and for the contexts 1 to 15, which the group does not use.
  Channel& channel(unsigned worker);
  // The sum over all workers.
  Stats stats() const;
  // A line for each worker.
  std::string describe() const;

 private:
  explicit GroupMaster(std::unique_ptr<detail::GroupCore> core) noexcept;

  std::unique_ptr<detail::GroupCore> core_;
};

// What a worker may ask for. All may be left out.
struct GroupWorkerOptions {
  std::optional<unsigned> rank;  // default: the lowest that nobody asks for, in order of coming
  std::optional<unsigned> size;  // the number of workers that there must be
  // As for Channel::connect, but connect_retry is on, so that master and workers may start in any
  // order, and connect_timeout (default 10 s) goes on until all workers are there.
  Options options;
};

// A worker's end of a group: a Channel to the master, and the worker's place. Owner, threads,
// processes and errors: as Channel.
class LEAT_EXPORT GroupWorker {
 public:
  // Connects to the master's listener and waits until the group is complete. Throws as
  // Channel::connect; kInvalidArgument with the master's words if it turns this worker away;
  // kTimeout if others have not come in time; kPeerDied if the master gave up.
  static GroupWorker connect(const std::string& address, const GroupWorkerOptions& options = {});

  unsigned rank() const noexcept { return rank_; }
  unsigned size() const noexcept { return size_; }

  void send(std::span<const std::byte> message) { channel_.send(message); }
  void send(std::string_view message) { channel_.send(message); }
  // The next that the master broadcast or sent; false when it has ended.
  [[nodiscard]] Message receive() { return channel_.receive(); }
  [[nodiscard]] std::optional<Message> try_receive() { return channel_.try_receive(); }

  // Everything else: flush, shutdown, close, stats, in-place reserve. Its context 0 is the group's.
  Channel& channel() noexcept { return channel_; }

 private:
  GroupWorker(Channel channel, unsigned rank, unsigned size) noexcept
      : channel_(std::move(channel)), rank_(rank), size_(size) {}

  Channel channel_;
  unsigned rank_;
  unsigned size_;
};

}  // namespace leat
