#include "files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <system_error>

namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::generic_category().message(errno));
}

}  // namespace

InputFile::InputFile(const std::string& path)
    : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) fail("cannot open " + path);
  struct stat status {};
  if (fstat(fd_, &status) != 0) fail("cannot look at " + path);
  if (!S_ISREG(status.st_mode)) {
    close(fd_);
    throw std::runtime_error(path + " is not a regular file");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() { close(fd_); }

void InputFile::read(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::read(fd_, bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR) fail("cannot read " + path_);
    if (count == 0) throw std::runtime_error(path_ + " became shorter while it was sent");
    if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void OutputFile::check_free(const std::string& path, bool replace) {
  struct stat status {};
  if (!replace && lstat(path.c_str(), &status) == 0) {
    throw std::runtime_error(path + " exists; use --force to replace it");
  }
}

OutputFile::OutputFile(const std::string& path, bool replace)
    : path_(path), part_(path + ".part"), replace_(replace) {
  check_free(path, replace);
  // What an earlier transfer left behind when it was killed.
  if (replace) unlink(part_.c_str());
  fd_ = open(part_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("cannot create " + part_ + (errno == EEXIST ? " (--force replaces it)" : ""));
}

OutputFile::~OutputFile() {
  close(fd_);
  if (!part_.empty()) unlink(part_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd_, bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR) fail("cannot write " + part_);
    if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void OutputFile::keep() {
  // Without permission to replace, also not what appeared in the meantime.
  const unsigned flags = replace_ ? 0 : RENAME_NOREPLACE;
  if (renameat2(AT_FDCWD, part_.c_str(), AT_FDCWD, path_.c_str(), flags) != 0) {
    fail("cannot rename " + part_ + " to " + path_);
  }
  part_.clear();
}
