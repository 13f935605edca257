// What errors say.
#pragma once

#include <functional>
#include <string>

#include "leat/error.h"

namespace leat::detail {

// The text of the error that the call throws, which EXPECTs to have that code; "no error" if it
// throws none.
std::string error_of(ErrorCode code, const std::function<void()>& call);

// EXPECTs that text in it.
void expect_text(const Error& error, const std::string& part);

}  // namespace leat::detail
