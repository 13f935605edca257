#include "preload/program_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace leat::preload {
namespace {

// The kernel's own limit for interpreters that are scripts themselves.
constexpr int kMostInterpreters = 5;
constexpr long kNoSetUserId = 0x0002;  // ST_NOSUID, which the kernel says in f_flags

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
constexpr Elf64_Half kMachine = EM_NONE;  // any
#endif

// Past our own calls.
class File {
 public:
  explicit File(const char* path) noexcept
      : fd_(static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC))) {}
  ~File() {
    if (fd_ >= 0) syscall(SYS_close, fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  template <typename Header>
  bool read(Header& header, std::size_t offset) const noexcept {
    return read_some(&header, sizeof(header), offset) == sizeof(header);
  }
  std::size_t read_some(void* bytes, std::size_t most, std::size_t offset) const noexcept {
    const ssize_t got = fd_ < 0 ? -1 : pread(fd_, bytes, most, static_cast<off_t>(offset));
    return got < 0 ? 0 : static_cast<std::size_t>(got);
  }

 private:
  int fd_;
};

// Whether the kernel gives the program rights that its caller lacks: then the dynamic linker
// loads nothing that only the caller asks for.
bool gains_rights(const char* path) noexcept {
  struct stat status {};
  if (stat(path, &status) != 0) return false;
  const bool set_group = (status.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP);
  const bool of_user = (status.st_mode & S_ISUID) != 0 && status.st_uid != getuid();
  const bool of_group = set_group && status.st_gid != getgid();
  const bool of_file = getuid() != 0 && getxattr(path, "security.capability", nullptr, 0) > 0;
  if (!of_user && !of_group && !of_file) return geteuid() != getuid() || getegid() != getgid();
  struct statfs mount {};
  return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 &&
         (statfs(path, &mount) != 0 || (mount.f_flags & kNoSetUserId) == 0);
}

// The dynamic linker itself has no interpreter either, but has a name as a library.
bool is_library(const File& file, const Elf64_Phdr& dynamic) noexcept {
  for (std::size_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic.p_filesz; at += sizeof(Elf64_Dyn)) {
    Elf64_Dyn entry{};
    if (!file.read(entry, dynamic.p_offset + at) || entry.d_tag == DT_NULL) return false;
    if (entry.d_tag == DT_SONAME) return true;
  }
  return false;
}

const char* obstacle_in(const File& file, const Elf64_Ehdr& header) noexcept {
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return "is a 32-bit program";
  if (kMachine != EM_NONE && header.e_machine != kMachine) return "is made for another machine";
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!file.read(segment, header.e_phoff + i * header.e_phentsize)) return nullptr;
    if (segment.p_type == PT_INTERP) return nullptr;
    if (segment.p_type == PT_DYNAMIC && is_library(file, segment)) return nullptr;
  }
  return "is linked statically";
}

// The interpreter that the first line of a script names.
bool interpreter(const File& file, char (&path)[PATH_MAX]) noexcept {
  char line[PATH_MAX];
  const std::size_t bytes = file.read_some(line, sizeof(line), 0);
  if (bytes < 3 || line[0] != '#' || line[1] != '!') return false;
  const char* const end = std::find<const char*>(line, line + bytes, '\n');
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  const char* const first = std::find_if_not<const char*>(line + 2, end, is_blank);
  const char* const last = std::find_if(first, end, is_blank);
  const auto length = static_cast<std::size_t>(last - first);
  if (length == 0 || length >= sizeof(path)) return false;
  std::memcpy(path, first, length);
  path[length] = '\0';
  return true;
}

}  // namespace

bool find_program(const char* name, char (&found)[PATH_MAX]) noexcept {
  const std::size_t length = std::strlen(name);
  if (length == 0 || length >= sizeof(found)) return false;
  if (std::strchr(name, '/') != nullptr) {
    std::memcpy(found, name, length + 1);
    return true;
  }
  const char* rest = getenv("PATH");  // NOLINT(concurrency-mt-unsafe): as execvp does
  if (rest == nullptr) rest = "/bin:/usr/bin";
  while (true) {
    const char* const end = strchrnul(rest, ':');
    const int folder = static_cast<int>(std::min<std::ptrdiff_t>(end - rest, PATH_MAX));
    const int bytes =
        std::snprintf(found, sizeof(found), "%.*s%s%s", folder, rest, folder == 0 ? "" : "/", name);
    struct stat status {};
    if (bytes < static_cast<int>(sizeof(found)) && access(found, X_OK) == 0 &&
        stat(found, &status) == 0 && S_ISREG(status.st_mode))
      return true;
    if (*end == '\0') return false;
    rest = end + 1;
  }
}

const char* obstacle(const char* path) noexcept {
  char script_interpreter[PATH_MAX];
  for (int i = 0; i < kMostInterpreters; ++i) {
    const File file(path);
    Elf64_Ehdr header{};
    if (interpreter(file, script_interpreter)) {
      path = script_interpreter;  // whose rights count, not those of the script
      continue;
    }
    if (gains_rights(path)) return "gains rights that leat-run's LD_PRELOAD must not have";
    if (!file.read(header, 0) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return nullptr;
    return obstacle_in(file, header);
  }
  return nullptr;
}

}  // namespace leat::preload
