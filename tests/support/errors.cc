#include "support/errors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

namespace leat::detail {

std::string error_of(ErrorCode code, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

void expect_text(const Error& error, const std::string& part) {
  EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
}

void expect_error(ErrorCode code, const std::function<void()>& call) {
  expect_error_of({code}, call);
}

void expect_error_of(std::initializer_list<ErrorCode> codes, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error where '" << to_string(*codes.begin()) << "' was due";
  } catch (const Error& error) {
    EXPECT_NE(std::ranges::find(codes, error.code()), codes.end())
        << "'" << to_string(error.code()) << "' where '" << to_string(*codes.begin())
        << "' was due: " << error.what();
    EXPECT_GT(std::string_view(error.what()).size(), 10u);
    EXPECT_NE(error.system_errno(), 0);
  }
}

bool is_closed_by_fork(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == ErrorCode::kClosed &&
           std::string(error.what()).find("forked") != std::string::npos;
  }
  return false;
}

}  // namespace leat::detail
