// What a fuzz target calls when a property does not hold.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace leat::detail {

inline void require(bool holds, const char* property) {
  if (holds) return;
  std::fprintf(stderr, "property does not hold: %s\n", property);
  std::abort();
}

}  // namespace leat::detail
