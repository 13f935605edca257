// Runs programs of this build as a user would.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "support/scratch.h"

namespace leat::detail {

using Arguments = std::vector<std::string>;

inline Arguments operator+(Arguments some, const Arguments& more) {
  some.insert(some.end(), more.begin(), more.end());
  return some;
}

struct ProgramResult {
  int exit_code = -1;  // 128 + signal if it was killed
  std::string out;
  std::string err;
};

// A program under way; killed if it has not ended when this is destroyed.
class Program {
 public:
  // `path` below the build folder ("bench/leat-bench"), or absolute. In `folder`, or here if that
  // is empty.
  Program(const std::string& path, const Arguments& arguments, const std::string& folder = {});
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  // Blocks until the program has printed `text` on either stream, and returns the rest of that
  // line; empty if it ended or a minute passed before.
  std::string wait_for(const std::string& text);
  void kill();
  // 0 once it was waited for.
  pid_t pid() const { return pid_ > 0 ? pid_ : 0; }
  // Blocks for the end; after five minutes kills the program.
  ProgramResult wait();

 private:
  bool ended();
  ProgramResult result() const;

  ScratchFolder streams_;
  pid_t pid_ = -1;
  int status_ = 0;
};

// Runs it to its end.
ProgramResult run_program(const std::string& path, const Arguments& arguments,
                          const std::string& folder = {});

std::string read_file(const std::string& path);

// How often `part` stands in `text`.
std::size_t count_of(const std::string& part, const std::string& text);

}  // namespace leat::detail
