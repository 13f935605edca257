// The two ends of a file transfer: a file that is read, and one that appears only when it is whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

class InputFile {
 public:
  // Throws std::runtime_error if it is not a regular file or cannot be read.
  explicit InputFile(const std::string& path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  std::uint64_t size() const { return size_; }
  // Fills the whole span; throws if the file ends before.
  void read(std::span<std::byte> bytes);

 private:
  std::string path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

// Written as PATH.part; keep() gives it its name. Without keep() nothing is left behind.
class OutputFile {
 public:
  // Throws std::runtime_error if `path` exists and may not be replaced.
  static void check_free(const std::string& path, bool replace);
  // As check_free, and if the file cannot be created.
  OutputFile(const std::string& path, bool replace);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  void keep();

 private:
  std::string path_;
  std::string part_;
  bool replace_;
  int fd_ = -1;
};
