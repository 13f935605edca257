// Runs a script over TCP and under a runner, and says whether they differ.
#pragma once

#include <string>

#include "stagehand.h"

namespace posix_fuzz {

enum class Verdict {
  kSame,
  kDiffers,   // TCP gave the same each time, the runner something else
  kUnstable,  // TCP gave different transcripts
};

struct Comparison {
  Verdict verdict = Verdict::kSame;
  std::string of_tcp;
  std::string of_runner;
  int tries = 0;      // patient ones
  int differing = 0;  // of those
};

class Comparer {
 public:
  Comparer(const std::string& runner, bool shows) : tcp_("", shows), runner_(runner, shows) {}

  // What differs at first is repeated so often, patiently.
  Comparison compare(const Script& script, int tries);

  // The smallest script found that still differs, with its comparison. Empty where that does not
  // differ each time.
  Script shrink(const Script& script, Comparison& comparison, int tries);

 private:
  bool once(const Script& script, bool patient, std::string& of_tcp, std::string& of_runner);

  Stagehand tcp_;
  Stagehand runner_;
};

// The script with what each step gave; where they differ, "-" over TCP and "+" under the runner.
std::string side_by_side(const Script& script, const Comparison& comparison);

// What differs first, without what is different each time: "get: = 0 | = -1 EPIPE". Differences of
// one kind have one cause, as a rule.
std::string kind_of(const Script& script, const Comparison& comparison);

}  // namespace posix_fuzz
