#include "preload/program_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace leat::preload {
namespace {

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
    return fd_ >= 0 && pread(fd_, &header, sizeof(header), static_cast<off_t>(offset)) ==
                           static_cast<ssize_t>(sizeof(header));
  }

 private:
  int fd_;
};

}  // namespace

std::optional<std::string> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = getenv("PATH");  // NOLINT(concurrency-mt-unsafe): as execvp does
  std::string rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  while (true) {
    const std::size_t colon = rest.find(':');
    const std::string candidate = rest.substr(0, colon) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    if (colon == std::string::npos) return std::nullopt;
    rest.erase(0, colon + 1);
  }
}

const char* obstacle(const std::string& path) noexcept {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && geteuid() != 0 &&
      (status.st_mode & (S_ISUID | S_ISGID)) != 0)
    return "is a set-user-ID program";
  const File file(path.c_str());
  Elf64_Ehdr header{};
  if (!file.read(header, 0) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64)
    return nullptr;  // a script: its interpreter is what runs
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!file.read(segment, header.e_phoff + i * header.e_phentsize)) return nullptr;
    if (segment.p_type == PT_INTERP) return nullptr;
  }
  return "is linked statically";
}

}  // namespace leat::preload
