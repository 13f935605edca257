#include "preload/meeting_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "preload/configuration.h"
#include "preload/meeting_policy.h"
#include "preload/real.h"
#include "preload/shared_memory.h"
#include "preload/socket_facts.h"

namespace leat::preload {
namespace {

// More names than any user needs; whoever fills the folder keeps its users with TCP.
constexpr unsigned kMostNames = 4096;
constexpr std::size_t kMostAddresses = 32;
// A socket is in the folder a moment before it can be found alive.
constexpr time_t kYoungestDead = 2;

bool is_loopback(const Address& address) {
  static constexpr std::array<std::uint8_t, 16> kLoopback{0, 0, 0, 0, 0, 0, 0, 0,
                                                          0, 0, 0, 0, 0, 0, 0, 1};
  return address.mapped() ? address.bytes[12] == 127 : address.bytes == kLoopback;
}

// ADDRESS of a link; `fd` is a socket in the network namespace that has it.
std::string key_of(const Address& address, int fd) {
  char text[24];
  std::string key;
  for (std::size_t i = address.mapped() ? 12 : 0; i < address.bytes.size(); ++i) {
    snprintf(text, sizeof(text), "%02x", unsigned{address.bytes[i]});
    key += text;
  }
  if (!is_loopback(address)) return key;
  std::uint64_t network = 0;
  socklen_t bytes = sizeof(network);
  real().getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &network, &bytes);
  snprintf(text, sizeof(text), "@%llx", static_cast<unsigned long long>(network));
  return key + text;
}

std::string prefix_of_places() { return "leat" + std::to_string(kMemoryVersion) + "."; }

std::string name_of(std::uint16_t port, const FolderPlace& place) {
  char text[48];
  snprintf(text, sizeof(text), "%u.%u.%08x", unsigned{port}, place.code, place.id);
  return prefix_of_places() + text;
}

// False: it is not the name of a place.
bool parse_name(const std::string& name, unsigned& port, FolderPlace& place) {
  const std::string prefix = prefix_of_places();
  if (name.compare(0, prefix.size(), prefix) != 0 ||
      sscanf(name.c_str() + prefix.size(), "%u.%u.%x", &port, &place.code, &place.id) != 3)
    return false;
  const bool good = port <= 65535 && place.code >= kFirstFolderCode &&
                    place.code < kFirstFolderCode + kFolderCodes;
  return good && name == name_of(static_cast<std::uint16_t>(port), place);
}

bool path_of(const std::string& name, sockaddr_un& path) {
  const std::string text = std::string(meeting_folder()) + "/" + name;
  if (text.size() >= sizeof(path.sun_path)) return false;
  path = {};
  path.sun_family = AF_UNIX;
  std::memcpy(path.sun_path, text.c_str(), text.size() + 1);
  return true;
}

// The folder, open to look at.
class Folder {
 public:
  Folder() noexcept : folder_(opendir(meeting_folder())) {
    probe_ = folder_ != nullptr ? real().socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
  }
  ~Folder() {
    if (folder_ != nullptr) closedir(folder_);
    if (probe_ >= 0) real().close(probe_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  bool good() const { return probe_ >= 0; }

  template <typename Visit>
  void for_each_name(const Visit& visit) {
    for (unsigned i = 0; i < kMostNames; ++i) {
      const dirent* entry = readdir(folder_);  // NOLINT(concurrency-mt-unsafe): a stream of ours
      if (entry == nullptr) return;
      visit(std::string(entry->d_name));
    }
  }

  // Whether such a socket is open somewhere; removes the name of one that is not. Leaves nothing in
  // its queue: a socket of another type is refused only after it was found.
  bool is_alive(const std::string& name) {
    sockaddr_un path{};
    struct stat status {};
    if (!look(name, status) || !S_ISSOCK(status.st_mode) || !path_of(name, path)) return false;
    if (real().connect(probe_, reinterpret_cast<sockaddr*>(&path), sizeof(path)) == 0) return false;
    if (errno == ECONNREFUSED && time(nullptr) - status.st_ctime >= kYoungestDead) remove(name);
    return errno == EPROTOTYPE;
  }

  bool look(const std::string& name, struct stat& status) {
    return fstatat(dirfd(folder_), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
  }
  void remove(const std::string& name) {
    const int kept_errno = errno;
    unlinkat(dirfd(folder_), name.c_str(), 0);
    errno = kept_errno;
  }
  // Every user who gets into the folder may ask; the policy decides.
  void open_to_all(const std::string& name) {
    // By the inode itself: the name may mean another file by now.
    const auto fd = static_cast<int>(
        system_call(SYS_openat, dirfd(folder_), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC, 0));
    struct stat status {};
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode)) chmod(path, 0666);
    if (fd >= 0) system_call(SYS_close, fd);
  }
  bool link(const std::string& to, const std::string& name) {
    return symlinkat(to.c_str(), dirfd(folder_), name.c_str()) == 0;
  }

 private:
  DIR* folder_;
  int probe_ = -1;  // of a type that no place has
};

// The part of a link's name that names the socket; empty if there is none.
std::string target_of(const std::string& link) {
  const std::size_t dot = link.find('.');
  return dot == std::string::npos ? std::string() : link.substr(dot + 1);
}

Address address_in(const sockaddr* address) {
  sockaddr_storage storage{};
  if (address == nullptr) return {};
  if (address->sa_family == AF_INET) std::memcpy(&storage, address, sizeof(sockaddr_in));
  if (address->sa_family == AF_INET6) std::memcpy(&storage, address, sizeof(sockaddr_in6));
  return Address::from(storage);
}

bool is_ip(const sockaddr* address) {
  return address != nullptr && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

// Calls `visit(address, mask)` for the addresses of this network namespace.
template <typename Visit>
void for_each_own_address(const Visit& visit) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (!is_ip(one->ifa_addr) || !is_ip(one->ifa_netmask)) continue;
    Address mask = address_in(one->ifa_netmask);
    // Of IPv4 the first bytes are the same in all of them.
    if (one->ifa_addr->sa_family == AF_INET) std::fill_n(mask.bytes.begin(), 12, std::uint8_t{255});
    visit(address_in(one->ifa_addr), mask);
  }
  freeifaddrs(all);
}

// Whether no router lies between.
bool is_near(const Address& to) {
  if (is_loopback(to)) return true;
  bool near = false;
  for_each_own_address([&](const Address& own, const Address& mask) {
    bool same = true;
    for (std::size_t i = 0; i < own.bytes.size(); ++i)
      same = same && ((own.bytes[i] ^ to.bytes[i]) & mask.bytes[i]) == 0;
    near = near || same;
  });
  return near;
}

// The addresses at which a listener can be reached.
std::vector<Address> addresses_of(int fd) {
  const Address bound = local_address(fd);
  if (!bound.any()) return {bound};
  const bool v4 = bound.mapped() || option(fd, IPPROTO_IPV6, IPV6_V6ONLY) == 0;
  const bool v6 = option(fd, SOL_SOCKET, SO_DOMAIN) == AF_INET6;
  std::vector<Address> addresses;
  for_each_own_address([&](const Address& own, const Address&) {
    if ((own.mapped() ? v4 : v6) && addresses.size() < kMostAddresses) addresses.push_back(own);
  });
  return addresses;
}

void not_met(const Address& to, const char* why) {
  log(Level::kInfo, "to %s: not met in %s (%s)", to.text().c_str(), meeting_folder(), why);
}

Opened unusable(const char* why) {
  log(Level::kError, "%s cannot be used to meet: %s", meeting_folder(), why);
  return Opened::kUnusable;
}

// Whether a listener at one of those addresses has that code. Removes names of dead sockets.
bool is_taken(Folder& folder, const std::vector<std::string>& keys, std::uint16_t port,
              unsigned code) {
  const std::string end =
      "." + prefix_of_places() + std::to_string(port) + "." + std::to_string(code) + ".";
  bool taken = false;
  folder.for_each_name([&](const std::string& name) {
    unsigned any_port = 0;
    FolderPlace place;
    if (parse_name(name, any_port, place)) {
      folder.is_alive(name);
      return;
    }
    const std::string target = target_of(name);
    struct stat status {};
    if (!parse_name(target, any_port, place)) return;
    if (!folder.look(target, status)) {
      folder.remove(name);
      return;
    }
    const auto begins = [&](const std::string& key) {
      return name.starts_with(key) && name.compare(key.size(), end.size(), end) == 0;
    };
    taken |= std::any_of(keys.begin(), keys.end(), begins) && folder.is_alive(target);
  });
  return taken;
}

}  // namespace

FolderPlace FolderPlaces::with(unsigned code) const noexcept {
  FolderPlace found;
  for (std::size_t i = 0; i < count; ++i) {
    if (list[i].code != code) continue;
    if (found.code != 0) return {};
    found = list[i];
  }
  return found;
}

Opened bind_in_folder(int meeting, int fd, std::uint16_t port, unsigned code) noexcept {
  Folder folder;
  if (!folder.good()) return unusable(strerrordesc_np(errno));
  std::vector<std::string> keys;
  for (const Address& address : addresses_of(fd)) keys.push_back(key_of(address, fd));
  if (is_taken(folder, keys, port, code)) return Opened::kTaken;
  FolderPlace place{0, code};
  if (getrandom(&place.id, sizeof(place.id), 0) != sizeof(place.id)) return Opened::kTaken;
  const std::string name = name_of(port, place);
  sockaddr_un path{};
  if (!path_of(name, path)) return unusable("its path is too long");
  if (bind(meeting, reinterpret_cast<sockaddr*>(&path), sizeof(path)) != 0)
    return errno == EADDRINUSE ? Opened::kTaken : unusable(strerrordesc_np(errno));
  folder.open_to_all(name);
  for (const std::string& key : keys) {
    if (folder.link(name, std::string(key).append(".").append(name))) continue;
    const int error = errno;
    folder.remove(name);
    return unusable(strerrordesc_np(error));
  }
  return Opened::kBound;
}

FolderPlaces places_for(int fd, const Address& to) noexcept {
  FolderPlaces places;
  Folder folder;
  if (!folder.good()) {
    not_met(to, strerrordesc_np(errno));
    return {};
  }
  const std::string begin =
      key_of(to, fd) + "." + prefix_of_places() + std::to_string(to.port) + ".";
  const char* why = nullptr;
  folder.for_each_name([&](const std::string& name) {
    if (name.compare(0, begin.size(), begin) != 0) return;
    const std::string target = target_of(name);
    unsigned port = 0;
    FolderPlace place;
    struct stat link {};
    struct stat socket {};
    if (!parse_name(target, port, place) || !folder.look(name, link)) return;
    if (!folder.look(target, socket)) {
      folder.remove(name);
      return;
    }
    if (!S_ISLNK(link.st_mode) || link.st_uid != socket.st_uid || !folder.is_alive(target)) return;
    const char* refused =
        why_not_meet(meeting_folder(), this_party(), party_of_user(socket.st_uid), to.port);
    if (refused != nullptr) why = refused;
    if (refused != nullptr) return;
    if (places.count < FolderPlaces::kMost) places.list[places.count] = place;
    ++places.count;
  });
  if (places.count > FolderPlaces::kMost) why = "there are too many listeners at this address";
  if (places.count != 0 && places.count <= FolderPlaces::kMost) {
    if (is_near(to)) return places;
    why = "a router lies between";
  }
  if (why != nullptr) not_met(to, why);
  return {};
}

int connect_in_folder(int fd, std::uint16_t port, const FolderPlace& place) noexcept {
  const std::string name = name_of(port, place);
  sockaddr_un path{};
  if (!path_of(name, path)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  if (real().connect(fd, reinterpret_cast<sockaddr*>(&path), sizeof(path)) != 0) return -1;
  // A link that somebody has put there may have led elsewhere.
  sockaddr_un reached{};
  socklen_t bytes = sizeof(reached);
  if (real().getpeername(fd, reinterpret_cast<sockaddr*>(&reached), &bytes) == 0 &&
      bytes <= sizeof(reached) && reached.sun_path[0] != '\0') {
    const std::string_view bound(reached.sun_path,
                                 strnlen(reached.sun_path, sizeof(path.sun_path)));
    if (bound.substr(bound.rfind('/') + 1) == name) return 0;
  }
  errno = EPROTO;
  return -1;
}

std::string folder_of_place(int meeting_fd) noexcept {
  sockaddr_un name{};
  socklen_t bytes = sizeof(name);
  if (getsockname(meeting_fd, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return {};
  const std::string path(name.sun_path, strnlen(name.sun_path, sizeof(name.sun_path)));
  const std::size_t end = path.rfind('/');
  return end == std::string::npos ? std::string() : path.substr(0, end);
}

bool parse_folder_place(const sockaddr_un& name, unsigned& port, unsigned& code) noexcept {
  const std::string path(name.sun_path, strnlen(name.sun_path, sizeof(name.sun_path)));
  FolderPlace place;
  if (!parse_name(path.substr(path.rfind('/') + 1), port, place)) return false;
  code = place.code;
  return true;
}

}  // namespace leat::preload
