// The checks of leat-info --check: whether leat can run here as the user wants.
#pragma once

#include <string>
#include <vector>

namespace leat::tools {

// What to check for; empty: not asked.
struct Wish {
  std::string device;
  std::string transport;
  std::string host;  // "HOST" or "HOST:PORT"
};

enum class Verdict {
  kOk,
  kWarning,  // leat runs, but not as well as it could
  kFailed,   // leat cannot run as asked
};
const char* to_string(Verdict verdict);

struct Check {
  std::string name;
  Verdict verdict = Verdict::kOk;
  std::string finding;
  std::string advice;  // if not ok
};

// Blocks for the connection to the host, at most `connect_timeout_ms`.
std::vector<Check> run_checks(const Wish& wish);

}  // namespace leat::tools
