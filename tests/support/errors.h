// Checks what errors say.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>

#include "leat/error.h"

namespace leat::detail {

// The text of the error that the call throws, which EXPECTs to have that code; "no error" if it
// throws none.
std::string error_of(ErrorCode code, const std::function<void()>& call);

// EXPECTs that text in it.
void expect_text(const Error& error, const std::string& part);

// EXPECTs a leat::Error of that code with a text.
void expect_error(ErrorCode code, const std::function<void()>& call);
// EXPECTs one of them.
void expect_error_of(std::initializer_list<ErrorCode> codes, const std::function<void()>& call);

// Whether the call throws kClosed, because what it is about belongs to the process that this one
// was forked from.
bool is_closed_by_fork(const std::function<void()>& call);

}  // namespace leat::detail
