// Turns a failed system call into a leat::Error, in one way everywhere.
#pragma once

#include <string>

#include "leat/error.h"
#include "leat/export.h"

namespace leat::detail {

// "<call> failed: <strerror>", with the code and the advice that fit the errno (for exhausted
// descriptors and memory it names the limit and how to raise it). `call` says which call failed,
// with which arguments. Exported for leat's other libraries.
[[nodiscard]] LEAT_EXPORT Error system_error(const std::string& call, int system_errno);

// Throws system_error(call, errno) if `result` is negative, as system calls report; else returns
// it.
int check(int result, const char* call);

}  // namespace leat::detail
