#include "support/scratch.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/fd.h"

namespace leat::detail {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

ScratchFolder::ScratchFolder()
    : path_((std::filesystem::temp_directory_path() / "leat-test-XXXXXX").string()) {
  if (mkdtemp(path_.data()) == nullptr) fail("mkdtemp " + path_);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ScratchFolder::write(const std::string& name, std::string_view text,
                                 unsigned mode) const {
  const std::string path = path_ + "/" + name;
  const Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file) fail("open " + path);
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      fchmod(file.get(), mode) != 0) {
    fail("write " + path);
  }
  return path;
}

ScratchVariable::ScratchVariable(const std::string& name, const std::optional<std::string>& value)
    : name_(name) {
  if (const char* before = std::getenv(name.c_str())) before_ = before;
  put(name_, value);
}

ScratchVariable::~ScratchVariable() { put(name_, before_); }

void ScratchVariable::put(const std::string& name, const std::optional<std::string>& value) {
  if (value) {
    setenv(name.c_str(), value->c_str(), 1);
  } else {
    unsetenv(name.c_str());
  }
}

}  // namespace leat::detail
