#include "preload/meeting_policy.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include "base/user_namespace.h"
#include "preload/configuration.h"
#include "preload/real.h"
#include "preload/undisturbed.h"

namespace leat::preload {
namespace {

constexpr std::size_t kMostPolicyBytes = 65'536;
constexpr uid_t kNoParty = static_cast<uid_t>(-1);

enum class PolicyFile { kMissing, kGood, kBad };

// A system that is wrong stays wrong: says so once in a process.
void report_policy(const std::string& path, const std::string& what) {
  static std::atomic<bool> reported{false};
  // Relaxed: only the first counts.
  if (reported.exchange(true, std::memory_order_relaxed)) return;
  log(Level::kError, "%s %s, so nobody meets there", path.c_str(), what.c_str());
}

// What is wrong with the file, or null.
const char* fault(int fd, const struct stat& folder) {
  struct stat file {};
  if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) return "is not a regular file";
  const bool owned = file.st_uid == 0 || file.st_uid == folder.st_uid;
  if (!owned || !detail::is_one_user(file.st_uid, real().syscall))
    return "belongs neither to root nor to the owner of its folder";
  if ((file.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "can be written by others than its owner";
  if (file.st_size > static_cast<off_t>(kMostPolicyBytes)) return "is too long";
  return nullptr;
}

PolicyFile read_policy(const std::string& path, const char* folder, std::string& text) {
  struct stat status {};
  if (stat(folder, &status) != 0) return PolicyFile::kBad;
  const auto fd = static_cast<int>(system_call(SYS_openat, AT_FDCWD, path.c_str(),
                                               O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd < 0 && errno == ENOENT) return PolicyFile::kMissing;
  const char* wrong = fd < 0 ? strerrordesc_np(errno) : fault(fd, status);
  while (wrong == nullptr && text.size() <= kMostPolicyBytes) {
    char part[4096];
    const long got = system_call(SYS_read, fd, part, sizeof(part));
    if (got < 0) wrong = "cannot be read";
    if (got <= 0) break;
    text.append(part, static_cast<std::size_t>(got));
  }
  if (text.size() > kMostPolicyBytes) wrong = "is too long";
  if (fd >= 0) system_call(SYS_close, fd);
  if (wrong != nullptr) report_policy(path, wrong);
  return wrong != nullptr ? PolicyFile::kBad : PolicyFile::kGood;
}

std::string_view next_word(std::string_view& text) {
  constexpr std::string_view kBlanks = " \t\r";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(word.size());
  return word;
}

bool read_number(std::string_view text, std::uint32_t most, std::uint32_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value <= most;
}

// One end as a line names it. False: it cannot be read.
bool fits(std::string_view name, const Party& party, bool& fit) {
  constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max() - 1;
  std::uint32_t number = 0;
  fit = party.user != kNoParty;
  if (name == "*") return true;
  if (name.starts_with("user:")) {
    fit = fit && read_number(name.substr(5), kMost, number) && party.user == number;
    return read_number(name.substr(5), kMost, number);
  }
  if (!name.starts_with("group:") || !read_number(name.substr(6), kMost, number)) return false;
  const auto* const end = party.groups.begin() + party.group_count;
  fit = fit && (!party.knows_groups || std::find(party.groups.begin(), end, number) != end);
  return true;
}

bool fits(std::string_view ports, std::uint16_t port, bool& fit) {
  fit = true;
  if (ports == "*") return true;
  const std::size_t dash = ports.find('-');
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  if (!read_number(ports.substr(0, dash), 65535, first)) return false;
  last = first;
  if (dash != std::string_view::npos && !read_number(ports.substr(dash + 1), 65535, last))
    return false;
  fit = port >= first && port <= last;
  return first <= last;
}

// Whether a line allows it. False for the whole text if a line cannot be read: then `bad` is its
// number.
bool allows(std::string_view text, const Party& connector, const Party& listener,
            std::uint16_t port, std::size_t& bad) {
  bool allowed = false;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line = line.substr(0, line.find('#'));
    const std::string_view verb = next_word(line);
    if (verb.empty()) continue;
    bool from = false;
    bool to = false;
    bool at = false;
    const bool good = verb == "allow" && fits(next_word(line), connector, from) &&
                      fits(next_word(line), listener, to) && fits(next_word(line), port, at) &&
                      next_word(line).empty();
    if (!good) {
      bad = number;
      return false;
    }
    allowed |= from && to && at;
  }
  return allowed;
}

void drop_unmapped(Party& party) {
  const uid_t unmapped = detail::number_of_unmapped_users(real().syscall);
  if (unmapped == detail::kNoUser) return;
  if (party.user == unmapped) party.user = kNoParty;
  auto* const end = party.groups.begin() + party.group_count;
  party.group_count = static_cast<std::size_t>(std::remove(party.groups.begin(), end, unmapped) -
                                               party.groups.begin());
}

}  // namespace

Party party_at(int unix_fd) noexcept {
  const Undisturbed undisturbed;
  Party party;
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (real().getsockopt(unix_fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return {};
  party.groups[0] = peer.gid;
  bytes = static_cast<socklen_t>((party.groups.size() - 1) * sizeof(gid_t));
  // Of a member of more groups than this nothing is certain.
  if (real().getsockopt(unix_fd, SOL_SOCKET, SO_PEERGROUPS, &party.groups[1], &bytes) != 0)
    return {};
  party.user = peer.uid;
  party.knows_groups = true;
  party.group_count = 1 + bytes / sizeof(gid_t);
  drop_unmapped(party);
  return party;
}

Party this_party() noexcept {
  const Undisturbed undisturbed;
  Party party;
  party.groups[0] = getegid();
  const int count = getgroups(static_cast<int>(party.groups.size()) - 1, &party.groups[1]);
  if (count < 0) return {};
  party.user = geteuid();
  party.knows_groups = true;
  party.group_count = 1 + static_cast<std::size_t>(count);
  drop_unmapped(party);
  return party;
}

Party party_of_user(uid_t user) noexcept {
  const Undisturbed undisturbed;
  Party party;
  party.user = user;
  drop_unmapped(party);
  return party;
}

const char* why_not_meet(const char* folder, const Party& connector, const Party& listener,
                         std::uint16_t port) noexcept {
  const Undisturbed undisturbed;
  const std::string path = std::string(folder) + "/policy";
  std::string text;
  const PolicyFile file = read_policy(path, folder, text);
  if (file == PolicyFile::kBad) return "the folder's policy cannot be used";
  if (connector.user == kNoParty || listener.user == kNoParty)
    return "this user namespace does not map its user";
  if (file == PolicyFile::kMissing)
    return connector.user == listener.user ? nullptr : "it belongs to another user";
  std::size_t bad = 0;
  if (allows(text, connector, listener, port, bad)) return nullptr;
  if (bad == 0) return "the folder's policy does not allow it";
  report_policy(path, "line " + std::to_string(bad) +
                          " cannot be read (allow CONNECTOR LISTENER PORTS, as allow user:1000 "
                          "user:999 6379)");
  return "the folder's policy cannot be used";
}

}  // namespace leat::preload
