// Included by every header of leat's C++ API, so that a compiler without C++20 reports one error
// instead of one for each feature that it lacks.
#pragma once

#if __cplusplus < 202002L
#error \
    "leat's C++ headers need C++20: compile with -std=c++20 or later. C and older C++ have leat/c.h."
#include <leat_needs_cxx20>  // does not exist: ends the compilation here
#endif
