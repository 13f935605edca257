#include "preload/escapes.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "preload/configuration.h"
#include "preload/descriptors.h"
#include "preload/program_file.h"
#include "preload/real.h"
#include "preload/undisturbed.h"

namespace leat::preload {
namespace {

// For every carried connection that survives an exec.
template <typename Report>
void for_each_inherited(Report report) {
  for_each(0, highest_known(), [&](int fd, const Reference& object) {
    if (!object.is(Kind::kConnection)) return;
    const int flags = real().fcntl(fd, F_GETFD, nullptr);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) report(fd);
  });
}

bool preloads_us(char* const* environment) {
  for (char* const* one = environment; one != nullptr && *one != nullptr; ++one) {
    const std::string_view variable(*one);
    if (variable.starts_with("LD_PRELOAD=") &&
        variable.find("libleat_preload") != std::string_view::npos)
      return true;
  }
  return false;
}

}  // namespace

void report_execution(const char* path, char* const* environment) noexcept {
  if (!reports_escapes()) return;
  const Undisturbed undisturbed;
  const char* why = path != nullptr ? obstacle(path) : nullptr;
  if (why == nullptr && !preloads_us(environment)) why = "runs without leat-run's LD_PRELOAD";
  if (why == nullptr) return;
  for_each_inherited([&](int fd) {
    log(Level::kWarn, "descriptor %d escapes: %s inherits it, but %s", fd,
        path != nullptr ? path : "a program", why);
  });
}

void report_command(const char* command) noexcept {
  if (!reports_escapes() || command == nullptr) return;
  const Undisturbed undisturbed;
  for_each_inherited([&](int fd) {
    log(Level::kWarn, "descriptor %d escapes: the command '%s' inherits it without its memory", fd,
        command);
  });
}

void report_reuse(int fd) noexcept {
  if (!reports_escapes()) return;
  const Undisturbed undisturbed;
  if (const Reference object = find(fd); object.is(Kind::kConnection))
    log(Level::kWarn, "descriptor %d escaped: it was closed past the C library's close()", fd);
}

void report_strange_bytes(const std::string& peer) noexcept {
  const Undisturbed undisturbed;
  log(Level::kError,
      "%s wrote past leat-run, to the kernel's socket, so these bytes are lost; docs/sockets.md "
      "says "
      "what cannot be carried",
      peer.c_str());
}

}  // namespace leat::preload
