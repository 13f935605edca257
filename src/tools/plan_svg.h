// Draws a plan: the use of memory over the steps.
#pragma once

#include <string>

#include "leat/scml/planner.h"

namespace leat::tools {

// "1.5 MiB", as people read sizes.
std::string rounded_size(std::uint64_t bytes);

// An SVG image. Each placement is a box, as wide as the steps during which it is open, as high as
// its bytes, in the colour of its protocol. Safe for any names.
std::string draw_plan(const scml::Plan& plan, const std::string& title);

}  // namespace leat::tools
