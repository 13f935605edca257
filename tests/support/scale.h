// How much a test does and how long it may hang, under whatever it is built with.
#pragma once

#include <chrono>
#include <cstddef>

#include "base/clock.h"

namespace leat::detail {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// Either, for what both make slow.
inline constexpr bool kSanitizer = kAddressSanitizer || kThreadSanitizer;

// `count` iterations, or the part of them that a sanitizer or LEAT_TEST_SCALE (a factor such as
// 0.1, for an emulated machine) leaves; at least 1.
std::size_t scaled(std::size_t count);

// When a wait is a hang: far beyond what any correct run needs, so that it judges no speed.
Deadline hang_deadline();
std::chrono::seconds hang_limit();

// A limit within which a dead peer must have been noticed, and a blocking call with a short timeout
// must have returned.
Deadline notice_deadline();

}  // namespace leat::detail
