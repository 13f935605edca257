// The version of these headers, and of the library that runs with them.
#pragma once

#include "leat/cxx20.h"
#include "leat/export.h"

#define LEAT_VERSION_MAJOR 0
#define LEAT_VERSION_MINOR 1
#define LEAT_VERSION_PATCH 0
#define LEAT_VERSION_STRING "0.1.0"

namespace leat {

// The version of the linked library: "0.1.0".
LEAT_EXPORT const char* version() noexcept;

}  // namespace leat
