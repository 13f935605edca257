// Descriptors of the library's own in the program's process: where the program cannot see them, and
// where they do not take away the numbers that the program would have over TCP.
#pragma once

#include "preload/signal_safe_lock.h"

namespace leat::preload {

// Takes a descriptor out of the program's sight, to a number that is not in the way of the
// program's own; closes the old one. -1 if no number is free.
int hide(int fd) noexcept;
// Closes one, unless the program has closed it past us and the number means a file of its own.
void close_hidden(int fd) noexcept;
bool is_hidden(int fd) noexcept;

// Whether a copy of the descriptor would find a number.
bool number_is_free(int fd) noexcept;
// For accepting though the program has used up its numbers: while it lives some are free, by
// raising the limit if that is allowed, else those that were kept back. A raised limit is also what
// the C library lets numbers of file actions go up to.
class SpareNumbers {
 public:
  SpareNumbers() noexcept;
  ~SpareNumbers();
  SpareNumbers(const SpareNumbers&) = delete;
  SpareNumbers& operator=(const SpareNumbers&) = delete;
};
// Keeps some back, once and again where they had to be used. False: there will be none.
bool keep_spare_numbers() noexcept;

// Whether a process has so few numbers that none may be hidden: then nothing is carried.
bool too_few_numbers() noexcept;
// The kernel gave the program `newest`, the lowest that was free. Where few are left, connections
// give up their hidden descriptors: they are carried as before, but cannot be passed to a program
// that is executed.
void make_room_after(int newest) noexcept;

// For a fork, which holds it (forking.cc).
SignalSafeLock& lock_of_spare_numbers() noexcept;
// In its child, which does not have the threads that were using them, while it holds the lock.
void end_use_of_spare_numbers() noexcept;

}  // namespace leat::preload
