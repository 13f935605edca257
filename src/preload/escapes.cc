#include "preload/escapes.h"

#include "preload/configuration.h"
#include "preload/descriptors.h"
#include "preload/undisturbed.h"

namespace leat::preload {

void report_reuse(int fd) noexcept {
  if (!reports_escapes()) return;
  const Undisturbed undisturbed;
  if (const Reference object = find(fd); object.is(Kind::kConnection))
    log(Level::kWarn, "descriptor %d escaped: it was closed past the C library's close()", fd);
}

}  // namespace leat::preload
