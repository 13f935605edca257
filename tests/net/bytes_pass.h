// Bytes over a stream between two threads.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <thread>
#include <vector>

#include "net/stream.h"
#include "support/scale.h"

namespace leat::detail {

// EXPECTs that `count` bytes arrive as they were written.
inline void expect_bytes_pass(Stream& from, Stream& to, std::size_t count) {
  std::vector<std::byte> sent(count);
  std::mt19937 random(1);
  for (std::byte& byte : sent) byte = static_cast<std::byte>(random());
  std::thread writer([&] { write_all(from, sent, hang_deadline()); });
  std::vector<std::byte> got(count);
  read_all(to, got, hang_deadline());
  writer.join();
  EXPECT_TRUE(got == sent);
}

}  // namespace leat::detail
