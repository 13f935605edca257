// The other side of a benchmark, as a process of its own.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

namespace leat::bench {

// Forks, so make it before any thread exists. The child runs `body` and ends; it also ends with its
// parent. Not movable.
class ForkedPeer {
 public:
  // `body` gets a function by which it tells its parent one line of text, such as its address.
  using Tell = std::function<void(const std::string&)>;
  explicit ForkedPeer(const std::function<void(const Tell&)>& body);
  ForkedPeer(const ForkedPeer&) = delete;
  ForkedPeer& operator=(const ForkedPeer&) = delete;
  ~ForkedPeer();  // kills a child that has not ended

  // What the child told. Blocks; throws std::runtime_error if it ended without a word.
  std::string listen() const;
  // The same if it has told something or ended; else no value.
  std::optional<std::string> try_listen() const;
  // Readable when try_listen() has something to say.
  int fd() const { return pipe_; }
  // Waits for the end of the child; throws std::runtime_error if it failed.
  void wait();

 private:
  pid_t pid_ = -1;
  int pipe_ = -1;
};

}  // namespace leat::bench
