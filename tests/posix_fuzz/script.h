// A script: what a sequence does, call by call, and how it is written: a line is a step, "A put c
// send 100 DONTWAIT" lets actor A send 100 bytes to the descriptor that it keeps under the name c.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace posix_fuzz {

// Actors are threads of processes: A and B are there from the start, others come by steps.
constexpr int kActors = 8;
// Names under which a process keeps descriptors.
constexpr int kSlots = 16;
constexpr int kNoSlot = -1;
// Addresses that listeners left.
constexpr int kPlaces = 6;
constexpr int kMostArguments = 6;

// Copied as bytes from process to process.
struct Step {
  int actor = 0;
  int operation = 0;
  int arguments[kMostArguments] = {};
};
using Script = std::vector<Step>;

struct Word {
  const char* text;
  int value;
};
using Words = std::vector<Word>;

enum class Form { kSlot, kNumber, kActor, kWord, kFlags };

struct Argument {
  Form form = Form::kNumber;
  const Words* words = nullptr;  // kWord: one of them; kFlags: any
};

class Call;

// What a step can be. Without `run`, the controller does it, not the actor.
struct Operation {
  const char* name;
  std::vector<Argument> arguments;
  void (*run)(Call&);
};

const std::vector<Operation>& operations();
int operation_named(const std::string& name);
int word_value(const Words& words, const std::string& text);

std::string to_text(const Step& step);
std::string to_text(const Script& script);
// Throws std::runtime_error with the line that it cannot read.
Script parse_script(const std::string& text);

}  // namespace posix_fuzz
