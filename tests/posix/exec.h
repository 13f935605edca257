// What a case's process becomes by exec: an echo server for a descriptor that it inherits, or what
// another word says.
#pragma once

#include <string>

namespace posix_cases {

// The argument by which main() knows; after it comes the descriptor.
inline constexpr const char* kExecuted = "--executed";

// Says what descriptors are open.
inline constexpr const char* kLists = "lists";
// Before the number of a listener: accepts with few descriptors.
inline constexpr const char* kLimited = "limited";

int run_executed(const std::string& word);
int run_list();
int run_limited();

}  // namespace posix_cases
