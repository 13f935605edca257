// From a failed system call to leat::Error, in one way everywhere.
#pragma once

#include <string>

#include "leat/error.h"

namespace leat::detail {

// "<call> failed: <strerror>", with the code and the advice that fit the errno (descriptor and
// memory exhaustion name the limit and how to raise it). `call` says what with which arguments.
[[nodiscard]] Error system_error(const std::string& call, int system_errno);

// Throws system_error(call, errno) if `result` is negative, as system calls report; else returns
// it.
int check(int result, const char* call);

}  // namespace leat::detail
