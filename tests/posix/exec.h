// What a case's process becomes by exec: an echo server for a descriptor that it inherits.
#pragma once

#include <string>

namespace posix_cases {

// The argument by which main() knows; after it comes the descriptor.
inline constexpr const char* kExecuted = "--executed";

int run_executed(const std::string& descriptor);

}  // namespace posix_cases
