// Commands of the shell: system(3) and popen(3).
#pragma once

#include "preload/signal_safe_lock.h"

namespace leat::preload {

// Of the signals that the process ignores meanwhile, and of the list of streams to commands: a fork
// holds them (forking.cc).
inline constinit SignalSafeLock lock_of_ignored_signals;
inline constinit SignalSafeLock lock_of_popened;

}  // namespace leat::preload
