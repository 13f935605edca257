// Protocol contexts: up to 16 independent, ordered flows of messages over one connection (CORA
// §3.1).
#pragma once

namespace leat::detail {

using Context = unsigned;
inline constexpr Context kContextCount = 16;

}  // namespace leat::detail
