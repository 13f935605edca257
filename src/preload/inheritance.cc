#include "preload/inheritance.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "preload/call.h"
#include "preload/configuration.h"
#include "preload/escapes.h"
#include "preload/hidden.h"
#include "preload/socket_facts.h"
#include "preload/stdio_streams.h"

namespace leat::preload {

namespace {

constexpr const char* kVariable = "LEAT_PRELOAD_INHERITED=";

struct Inherited {
  std::uint64_t cookie = 0;
  char kind = 0;        // c connection, l listener
  int hidden = -1;      // memory or meeting place
  unsigned detail = 0;  // side or code
  unsigned owner = 0;
  unsigned port = 0;
};

std::vector<Inherited> parse(const char* text) {
  std::vector<Inherited> list;
  int used = 0;
  Inherited one;
  unsigned long long cookie = 0;
  while (sscanf(text, "%c:%llx:%d:%u:%u:%u;%n", &one.kind, &cookie, &one.hidden, &one.detail,
                &one.owner, &one.port, &used) == 6) {
    one.cookie = cookie;
    list.push_back(one);
    text += used;
  }
  return list;
}

}  // namespace

Inheritance::Inheritance(const char* path, char* const* environment, bool all)
    : variable_(kVariable) {
  report_execution(path, environment);
  std::vector<const Object*> seen;
  for_each(0, highest_known(), [&](int fd, const Reference& object) {
    if (Reference socket = find(fd); socket.awaits_offer()) decide_now(fd, socket);
    const bool connection = object.is(Kind::kConnection);
    if (!connection && !object.is(Kind::kListener)) return;
    if (std::find(seen.begin(), seen.end(), object.get()) != seen.end()) return;
    const int flags = real().fcntl(fd, F_GETFD, nullptr);
    if (flags < 0 || (!all && (flags & FD_CLOEXEC) != 0)) return;
    const int hidden = connection ? object->connection.memfd() : object->meeting_fd;
    if (hidden < 0) {
      log(Level::kWarn, "descriptor %d cannot be passed on: no number was free for its memory", fd);
      return;
    }
    seen.push_back(object.get());
    object->made_at = 0;
    char entry[96];
    snprintf(entry, sizeof(entry), "%c:%llx:%d:%u:%u:%u;", connection ? 'c' : 'l',
             static_cast<unsigned long long>(cookie_of(fd)), hidden,
             connection ? object->connection.side() : object->code,
             static_cast<unsigned>(object->owner), unsigned{object->port});
    variable_ += entry;
    real().fcntl(hidden, F_SETFD, nullptr);
    opened_.push_back(hidden);
  });
  for (char* const* one = environment; one != nullptr && *one != nullptr; ++one) {
    if (strncmp(*one, kVariable, strlen(kVariable)) != 0) pointers_.push_back(*one);
  }
  if (!opened_.empty()) pointers_.push_back(variable_.data());
  pointers_.push_back(nullptr);
}

Inheritance::~Inheritance() {
  const int kept_errno = errno;
  for (const int fd : opened_) real().fcntl(fd, F_SETFD, reinterpret_cast<void*>(FD_CLOEXEC));
  errno = kept_errno;
}

bool take_over_listener(int fd, int hidden, unsigned code, unsigned owner, unsigned port) noexcept {
  Reference object = add(fd, Kind::kSocket);
  if (!object) {
    close_hidden(hidden);
    return false;
  }
  object->meeting_fd = hidden;
  object->code = code;
  object->owner = owner;
  object->port = static_cast<std::uint16_t>(port);
  object->kind.store(Kind::kListener, std::memory_order_release);
  return true;
}

bool take_over_connection(int fd, int hidden, unsigned side, const EndHold& end) noexcept {
  Reference object = add(fd, Kind::kSocket);
  if (!object || side > 1 || !attach_memory(*object, hidden, side, end)) {
    forget(fd);
    close_hidden(hidden);
    return false;
  }
  object->connection.keep_open(hidden);
  object->connection.is_in_table();
  object->connection.own().cookie.store(cookie_of(fd), std::memory_order_relaxed);
  object->kind.store(Kind::kConnection, std::memory_order_release);
  return true;
}

// Before the program has other threads.
// NOLINTBEGIN(concurrency-mt-unsafe)
void inherit() noexcept {
  const std::string name(kVariable, strlen(kVariable) - 1);
  const char* text = getenv(name.c_str());
  if (text == nullptr) return;
  const std::vector<Inherited> list = parse(text);
  unsetenv(name.c_str());
  std::vector<int> descriptors;
  if (DIR* folder = opendir("/proc/self/fd")) {
    while (const dirent* entry = readdir(folder)) {
      const int fd = atoi(entry->d_name);
      if (entry->d_name[0] != '.' && fd != dirfd(folder)) descriptors.push_back(fd);
    }
    closedir(folder);
  }
  for (const Inherited& one : list) {
    // Our own again.
    if (real().fcntl(one.hidden, F_SETFD, reinterpret_cast<void*>(FD_CLOEXEC)) < 0) continue;
    add(one.hidden, Kind::kOwn);
    int first = -1;
    for (const int fd : descriptors) {
      if (one.cookie == 0 || cookie_of(fd) != one.cookie) continue;
      if (first < 0) {
        first = fd;
        const bool good = one.kind == 'l'
                              ? take_over_listener(fd, one.hidden, one.detail, one.owner, one.port)
                              : take_over_connection(fd, one.hidden, one.detail, {});
        if (!good) break;
      } else {
        add_duplicate(first, fd);
      }
      if (find(fd).is(Kind::kConnection)) replace_standard_stream(fd);
    }
    if (first < 0) close_hidden(one.hidden);
  }
}
// NOLINTEND(concurrency-mt-unsafe)

}  // namespace leat::preload
