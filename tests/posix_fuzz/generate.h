// Scripts from seeds.
#pragma once

#include <cstdint>

#include "script.h"

namespace posix_fuzz {

struct Taste {
  // Only what the C library's functions do: neither syscall() nor the instruction.
  bool library_only = false;
};

Script generate(std::uint64_t seed, const Taste& taste = {});

}  // namespace posix_fuzz
