// All of leat's C++ API.
#pragma once

#include "leat/channel.h"
#include "leat/error.h"
#include "leat/group.h"
#include "leat/listener.h"
#include "leat/options.h"
#include "leat/planned.h"
#include "leat/poller.h"
#include "leat/socket.h"
#include "leat/stats.h"
#include "leat/version.h"
#include "leat/wait.h"
