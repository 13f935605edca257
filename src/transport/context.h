// Protocol contexts: up to 16 independent, ordered flows of messages over one connection (CORA
// §3.1).
#pragma once

#include <string>

namespace leat::detail {

using Context = unsigned;
inline constexpr Context kContextCount = 16;

// For errors. A caller that computed a negative number reads that one.
inline std::string no_context(Context context) {
  return "there is no protocol context " + std::to_string(static_cast<int>(context));
}
inline constexpr const char* kContextsAre = "Contexts are 0 to 15.";

}  // namespace leat::detail
