// Text over a handle of leat/c.h.
#pragma once

#include <gtest/gtest.h>

#include <iterator>
#include <string_view>

#include "leat/c.h"

namespace leat::detail {

// EXPECTs that all of it is sent.
inline void send_text(int handle, std::string_view text) {
  EXPECT_EQ(leat_send(handle, text.data(), text.size(), 0), std::ssize(text)) << leat_last_error();
}

}  // namespace leat::detail
