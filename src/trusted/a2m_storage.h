// Memory that grows at its end without moving, of a file or of this process alone.
#pragma once

#include <cstddef>
#include <string>

namespace leat::trusted::detail {

// Address space is reserved once, so that what was read stays where it is while others append;
// pages come in extents that double up to 64 MiB. One thread at a time grows; reading the bytes
// that were there before is free for all. Errors: leat::Error kResource, kSystem, kUnavailable.
class A2mStorage {
 public:
  enum class Access { kWrite, kRead };

  // Zeroed memory of this process.
  explicit A2mStorage(std::size_t most_bytes);
  // Of the file, which must exist. For writing it is locked: kUnavailable if somebody else has.
  A2mStorage(const std::string& path, std::size_t most_bytes, Access access);
  A2mStorage(A2mStorage&&) = delete;
  ~A2mStorage();

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  // What the file had when it was opened: behind that are zeros, also within its last page.
  std::size_t found_bytes() const noexcept { return found_bytes_; }

  // At least so many bytes, up to `most_bytes`; new ones are zero.
  void grow(std::size_t bytes);
  // The whole pages between are zero from now on, and take no room.
  void release(std::size_t from, std::size_t to) noexcept;
  // On the disk.
  void sync();

 private:
  void reserve();
  void map(std::size_t from, std::size_t to);

  const std::string path_;  // empty: of this process
  const std::size_t most_bytes_;
  const Access access_;
  int fd_ = -1;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t found_bytes_ = 0;
};

}  // namespace leat::trusted::detail
