// Connections and listeners that a program passes to one that it executes.
#pragma once

#include <string>
#include <vector>

#include "preload/end_state.h"

namespace leat::preload {

// The environment for a program about to be executed: the caller's, with a variable that names the
// memory of those descriptors that survive. While it lives that memory survives too.
class Inheritance {
 public:
  // `path`: of the program, null if that is not known. `all`: descriptors that are closed on exec
  // too, as posix_spawn may duplicate them.
  Inheritance(const char* path, char* const* environment, bool all);
  ~Inheritance();
  Inheritance(const Inheritance&) = delete;
  Inheritance& operator=(const Inheritance&) = delete;

  char* const* environment() noexcept { return pointers_.data(); }

 private:
  std::string variable_;
  std::vector<char*> pointers_;
  std::vector<int> opened_;  // close-on-exec taken off
};

// What a descriptor stands for that came from another program, or by a message. The hidden
// descriptor belongs to it from then on. False: it is closed.
bool take_over_connection(int fd, int hidden, unsigned side, const EndHold& end) noexcept;
bool take_over_listener(int fd, int hidden, unsigned code, unsigned owner, unsigned port) noexcept;

// In a program that was executed: finds what it inherited. Once, at the start.
void inherit() noexcept;

}  // namespace leat::preload
