// Runs the two sides of a test as two threads or as two processes, from one text.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/fd.h"
#include "support/scale.h"

namespace leat::detail {

enum class PeerMode { kThreads, kProcesses };
// For what need not run in both: processes, but under sanitizers, where a process costs more than
// most cases do, threads.
inline constexpr PeerMode kUsualPeers = kSanitizer ? PeerMode::kThreads : PeerMode::kProcesses;
// "threads", "processes": for test names.
std::string to_string(PeerMode mode);
void PrintTo(PeerMode mode, std::ostream* out);

// What one side has to talk with the other side of its test, beside what is tested. One thread.
class Peer {
 public:
  Peer(PeerMode mode, Fd socket) : mode_(mode), socket_(std::move(socket)) {}

  PeerMode mode() const { return mode_; }

  // One short string, any bytes, at most kMaxWordBytes; arrives whole and in order.
  void tell(std::string_view word);
  // The other side's next word. Throws std::runtime_error if that side has ended, or after
  // hang_limit().
  std::string hear();
  // Whether hear() would return, or throw, at once.
  bool has_word() const;
  // Hears and throws unless it is `word`.
  void hear(std::string_view word);

  template <typename Value>
  void tell_value(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>);
    tell({reinterpret_cast<const char*>(&value), sizeof(value)});
  }
  template <typename Value>
  Value hear_value() {
    static_assert(std::is_trivially_copyable_v<Value>);
    Value value;
    hear_bytes(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }

  // Both sides have come here.
  void barrier();

  // Returns when the other side has told nothing more and ended (or died).
  void await_end();

  // SIGKILL to the other side, which is another process. That side is then expected to die.
  void kill_other();
  void set_other_process(pid_t process) { other_process_ = process; }

  static constexpr std::size_t kMaxWordBytes = 4096;

 private:
  void hear_bytes(std::span<std::byte> bytes);

  PeerMode mode_;
  Fd socket_;
  pid_t other_process_ = 0;
};

using PeerBody = std::function<void(Peer&)>;

// How the second side ends.
enum class SecondEnds {
  kByReturning,
  kByVanishing,  // by exit(0), which destroys nothing; two processes only
  kBySignal,     // SIGKILL, from itself or from the first side; two processes only
};

// Runs both bodies at the same time and returns when both have ended. As processes, both are
// children of the caller, which must not have other threads at that time; what they EXPECT is
// reported here, with the side's name. An exception in a body is a failure. A side that takes
// longer than a few hang_limit() is a failure: processes are killed, threads abort the program.
void run_pair(PeerMode mode, const PeerBody& first, const PeerBody& second,
              SecondEnds second_ends = SecondEnds::kByReturning);

// The same for `count` sides, which get their numbers and have nothing to talk with but what is
// tested. `killed`: that side ends itself by SIGKILL; processes only.
void run_parties(PeerMode mode, unsigned count, const std::function<void(unsigned)>& body,
                 std::optional<unsigned> killed = {});

// Runs `body` in a process of its own, as one side alone.
void run_process(const std::string& name, const std::function<void()>& body);

}  // namespace leat::detail
