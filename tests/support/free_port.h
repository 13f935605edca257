// TCP ports for what takes a number and cannot say which one the system chose.
#pragma once

namespace leat::detail {

// A port that nobody has now, outside the range from which the system chooses, and that no other
// process is given while this one lives.
int free_port();

}  // namespace leat::detail
