// Draws a plan: memory over steps.
#pragma once

#include <string>

#include "leat/scml/planner.h"

namespace leat::tools {

// "1.5 MiB", as people read sizes.
std::string rounded_size(std::uint64_t bytes);

// An SVG image: each placement a box, as wide as the steps that it is open in, as high as the bytes
// that it takes, in the colour of its protocol. Safe for any names.
std::string draw_plan(const scml::Plan& plan, const std::string& title);

}  // namespace leat::tools
