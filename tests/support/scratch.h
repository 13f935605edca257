// Files and variables that a test changes; its end restores them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace leat::detail {

// A folder of its own, removed with all that is in it.
class ScratchFolder {
 public:
  ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder();

  const std::string& path() const { return path_; }
  // Writes a file for the owner only, or with other permissions; returns its path.
  std::string write(const std::string& name, std::string_view text, unsigned mode = 0600) const;

 private:
  std::string path_;
};

// An environment variable, set or (with no value) unset. Not while other threads run.
class ScratchVariable {
 public:
  ScratchVariable(const std::string& name, const std::optional<std::string>& value);
  ScratchVariable(const ScratchVariable&) = delete;
  ScratchVariable& operator=(const ScratchVariable&) = delete;
  ~ScratchVariable();

 private:
  static void put(const std::string& name, const std::optional<std::string>& value);

  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace leat::detail
