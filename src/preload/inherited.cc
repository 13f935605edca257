#include "preload/inherited.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <utility>
#include <vector>

#include "preload/configuration.h"
#include "preload/descriptors.h"
#include "preload/epoll_passing.h"
#include "preload/hidden.h"
#include "preload/meeting.h"
#include "preload/real.h"
#include "preload/socket_facts.h"
#include "preload/stdio_streams.h"

namespace leat::preload {
namespace {

constexpr std::size_t kNameBytes = sizeof(kInheritedVariable) - 1;  // with the =

std::vector<Inherited> read_environment() {
  std::vector<Inherited> list;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    if (strncmp(*variable, kInheritedVariable, kNameBytes) != 0) continue;
    const char* text = *variable + kNameBytes;
    Inherited one;
    unsigned long long cookie = 0;
    int used = 0;
    while (sscanf(text, "%c:%llx:%d:%u:%u:%u:%u;%n", &one.kind, &cookie, &one.hidden, &one.detail,
                  &one.owner, &one.port, &one.in_sight, &used) == 7) {
      one.cookie = cookie;
      list.push_back(one);
      text += used;
    }
  }
  return list;
}

// The program's sockets by their cookies, each of which is asked for once.
std::vector<std::pair<std::uint64_t, int>> sockets() {
  std::vector<std::pair<std::uint64_t, int>> found;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return found;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the folder is open here only
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] == '.') continue;
    const int fd = atoi(entry->d_name);
    if (const std::uint64_t cookie = cookie_of(fd); cookie != 0) found.emplace_back(cookie, fd);
  }
  closedir(folder);
  std::sort(found.begin(), found.end());
  return found;
}

// Ours again, and out of sight; as it is where no other number is free.
int hidden_again(const Inherited& one) {
  if (real().fcntl(one.hidden, F_SETFD, reinterpret_cast<void*>(FD_CLOEXEC)) < 0) return -1;
  if (one.in_sight != 0) {
    const long copy = system_call(SYS_fcntl, one.hidden, F_DUPFD_CLOEXEC, 0L);
    const int moved = copy < 0 ? -1 : hide(static_cast<int>(copy));
    if (moved >= 0) system_call(SYS_close, one.hidden);
    if (moved >= 0) return moved;
  }
  add(one.hidden, Kind::kOwn);
  return one.hidden;
}

}  // namespace

std::size_t write_inherited(const Inherited& one, char* text) noexcept {
  const int bytes = snprintf(text, kMostInheritedText, "%c:%llx:%d:%u:%u:%u:%u;", one.kind,
                             static_cast<unsigned long long>(one.cookie), one.hidden, one.detail,
                             one.owner, one.port, one.in_sight);
  return bytes < 0 ? 0 : static_cast<std::size_t>(bytes);
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

void inherit() noexcept {
  log_enabled(Level::kError);  // so that a vfork()'s child need not read the configuration
  const std::vector<Inherited> list = read_environment();
  if (list.empty()) return;
  // Before the program has other threads.
  char name[kNameBytes] = {};
  std::copy_n(kInheritedVariable, kNameBytes - 1, name);
  unsetenv(name);  // NOLINT(concurrency-mt-unsafe)
  const std::vector<std::pair<std::uint64_t, int>> descriptors = sockets();
  std::list<AdoptedEnds> ends;
  const auto end_of = [&ends](std::uint64_t cookie) {
    for (const AdoptedEnds& one : ends) {
      if (const EndHold end = one.find(cookie); end.state != nullptr) return end;
    }
    return EndHold{};
  };
  std::vector<std::pair<int, int>> sets;
  std::vector<std::pair<std::uint64_t, int>> first_numbers;
  for (const Inherited& one : list) {
    const int hidden = hidden_again(one);
    if (hidden < 0) continue;
    if (one.kind == 's') {
      const auto set = static_cast<int>(one.detail);
      const auto same =
          std::find_if(first_numbers.begin(), first_numbers.end(),
                       [&one](const auto& known) { return known.first == one.cookie; });
      if (same != first_numbers.end()) {
        if (!find(set) && is_set(set)) add_duplicate(same->second, set);
        close_hidden(hidden);
        continue;
      }
      if (!find(set) && is_set(set)) add_set(set);
      first_numbers.emplace_back(one.cookie, set);
      sets.emplace_back(set, hidden);
      continue;
    }
    if (one.kind == 'e') {
      ends.emplace_back(hidden);
      continue;
    }
    const auto its_own = std::pair(one.cookie, 0);
    auto socket = std::lower_bound(descriptors.begin(), descriptors.end(), its_own);
    const auto is_its = [&] {
      return one.cookie != 0 && socket != descriptors.end() && socket->first == one.cookie;
    };
    if (!is_its()) {
      close_hidden(hidden);
      continue;
    }
    const int first = socket->second;
    const bool good = one.kind == 'l'
                          ? take_over_listener(first, hidden, one.detail, one.owner, one.port)
                          : take_over_connection(first, hidden, one.detail, end_of(one.cookie));
    if (!good) {
      log(Level::kError, "descriptor %d was inherited without its memory, so it is shut down",
          first);
      real().shutdown(first, SHUT_RDWR);
    }
    for (; good && is_its(); ++socket) {
      if (socket->second != first) add_duplicate(first, socket->second);
      if (one.kind != 'l') replace_standard_stream(socket->second);
    }
  }
  for (const auto& [set, hidden] : sets) take_over_set(set, hidden);
}

}  // namespace leat::preload
