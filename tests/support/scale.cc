#include "support/scale.h"

#include <algorithm>
#include <cstdlib>

namespace leat::detail {
namespace {

double environment_factor() {
  const char* text = std::getenv("LEAT_TEST_SCALE");
  const double factor = text == nullptr ? 1.0 : std::strtod(text, nullptr);
  return factor > 0.0 && factor < 1.0 ? factor : 1.0;
}

}  // namespace

std::size_t scaled(std::size_t count) {
  constexpr std::size_t kDivisor = kSanitizer ? 10 : 1;
  const double part = static_cast<double>(count / kDivisor) * environment_factor();
  return std::max<std::size_t>(1, static_cast<std::size_t>(part));
}

std::chrono::seconds hang_limit() { return std::chrono::seconds(60); }

Deadline hang_deadline() { return deadline_after(hang_limit()); }

Deadline notice_deadline() { return deadline_after(std::chrono::seconds(20)); }

}  // namespace leat::detail
