// Runs scripts: makes the actors, lets one of them do a step at a time, and writes down what each
// call gave. A call that sleeps is "asleep" and may come back at a later step.
#pragma once

#include <string>

#include "script.h"

namespace posix_fuzz {

struct Pace {
  // How often in a row, a millisecond apart, a thread must be seen asleep to count as blocked, and
  // to count as still blocked after a step of another.
  int looks_at_new = 5;
  int looks_at_old = 3;
  // After each step.
  int rest_us = 0;
  // A thread that runs for so long without coming back hangs.
  int patience_ms = 1500;
};
constexpr Pace kFast;
// For what differed: no slowness of the machine or of the kernel's own work is mistaken for a
// result; longer than a tick of its clock, in which leat may not ask it of an end again.
constexpr Pace kPatient{60, 40, 6000, 5000};

// Makes what a controller needs of its process, once.
void prepare_stage();
// Of a program that a step executes: takes its descriptors and its seat.
[[noreturn]] void act_after_exec(int number);

// The transcript. `tag` chooses the address of this script's listeners.
std::string run_script(const Script& script, const Pace& pace, unsigned tag);

}  // namespace posix_fuzz
