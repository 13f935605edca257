// A process that runs scripts one after the other, started by a runner such as leat-run or by none.
#pragma once

#include <sys/types.h>

#include <string>

#include "controller.h"

namespace posix_fuzz {

struct Order {
  bool patient = false;
  unsigned tag = 0;
};

class Stagehand {
 public:
  // `shows`: what it writes to stderr is seen.
  Stagehand(std::string runner, bool shows) : runner_(std::move(runner)), shows_(shows) {}
  ~Stagehand() { end(); }
  Stagehand(const Stagehand&) = delete;
  Stagehand& operator=(const Stagehand&) = delete;

  // Two calls, so that two stagehands work at the same time.
  void give(const Script& script, bool patient);
  std::string transcript();

 private:
  void begin();
  void end();

  std::string runner_;
  bool shows_;
  pid_t pid_ = -1;
  int orders_ = -1;
  int transcripts_ = -1;
  unsigned scripts_ = 0;
};

// What the process does that a Stagehand starts.
[[noreturn]] void work_as_stagehand();

}  // namespace posix_fuzz
