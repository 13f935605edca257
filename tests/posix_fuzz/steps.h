// What the steps do, in groups, and what they are given.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "script.h"
#include "stage.h"

namespace posix_fuzz {

// What all threads of a process share.
struct Process {
  Stage* stage = nullptr;
  int slots[kSlots];
};
extern Process process;
// The calling thread's.
extern thread_local Seat* seat;

// Takes orders until the process or the thread ends.
[[noreturn]] void act(Seat& mine);

// The step that an actor works on. What it says is what must be the same on TCP.
class Call {
 public:
  explicit Call(Seat& mine) : seat_(mine) {}

  int argument(std::size_t index) const { return seat_.step.arguments[index]; }
  int fd(std::size_t index) const {
    const int slot = argument(index);
    return slot == kNoSlot ? -1 : process.slots[slot];
  }
  void keep(std::size_t index, int fd) const { process.slots[argument(index)] = fd; }
  Seat& seat() const { return seat_; }
  Stage& stage() const { return *process.stage; }
  int number() const { return seat_.number; }

  __attribute__((format(printf, 2, 3))) void say(const char* format, ...) const;
  // " = 5", " = -1 EBADF". Returns the result.
  long result(long value) const;
  void data(const void* bytes, long count) const;

 private:
  Seat& seat_;
};

std::vector<Operation> socket_operations();
std::vector<Operation> byte_operations();
std::vector<Operation> descriptor_operations();
std::vector<Operation> waiting_operations();
std::vector<Operation> process_operations();

// Words that the generator knows.
extern const Words kPutForms, kSendFlags, kGetForms, kReceiveFlags, kCloseWays, kOpenWays, kHows,
    kPollWays, kPollEvents, kEpollEvents, kEpollControls, kEpollWays, kOptions, kFamilies,
    kSocketFlags, kFlagNames, kSpawnWays, kExitWays, kHandlerActions, kAcceptWays, kDupWays,
    kSignals;

inline Argument slot() { return {Form::kSlot, nullptr}; }
inline Argument number() { return {Form::kNumber, nullptr}; }
inline Argument actor() { return {Form::kActor, nullptr}; }
inline Argument word(const Words& words) { return {Form::kWord, &words}; }
inline Argument flags(const Words& words) { return {Form::kFlags, &words}; }

// What TCP has sent may be on its way for long: where the receiver was short of memory it is sent
// again after 200 ms, and an end may be acknowledged after 40. Where the pace is patient this waits
// until the kernel at the other end of the step's first descriptor has it, without sleeping, which
// would be a result. (Under leat-run the kernel has nothing but rings.)
void arrive(const Call& call);

// The receiver's part of "pump", which the controller gives to another actor than the step's.
void receive_pumped(Call& call);

// What is sent by a step: differs with step and place.
void fill_pattern(unsigned char* bytes, std::size_t count, int number);
std::uint32_t digest(const void* bytes, std::size_t count);

}  // namespace posix_fuzz
