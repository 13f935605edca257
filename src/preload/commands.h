// Commands of the shell: system(3) and popen(3).
#pragma once

namespace leat::preload {

// In a forked child, where nobody holds the lock.
void forget_lock_of_commands() noexcept;

}  // namespace leat::preload
