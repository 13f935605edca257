// Takes sessions from a controller.
#pragma once

#include "attestd/holdings.h"
#include "trusted/remote/kernel_process.h"

namespace leat::attestd {

// Blocks until the controller has passed the keys and sent ENABLE. Throws leat::Error.
void take_sessions(trusted::remote::KernelEnd& controller, Holdings& holdings);

}  // namespace leat::attestd
