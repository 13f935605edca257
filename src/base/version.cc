#include "leat/version.h"

namespace leat {

const char* version() noexcept { return LEAT_VERSION_STRING; }

}  // namespace leat
