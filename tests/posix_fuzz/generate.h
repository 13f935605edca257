// Scripts from seeds.
#pragma once

#include <cstdint>

#include "script.h"

namespace posix_fuzz {

Script generate(std::uint64_t seed);

}  // namespace posix_fuzz
