// Memory of a file or of this process that grows at its end without moving.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

namespace leat::trusted::detail {

// Address space is reserved once, so that memory stays in place for readers while others append;
// pages come in extents that double up to 64 MiB. One thread at a time may grow it; any thread may
// read bytes that existed before. Errors: leat::Error kResource, kSystem, kUnavailable.
class A2mStorage {
 public:
  enum class Access { kWrite, kRead };

  // Zeroed memory of this process.
  explicit A2mStorage(std::size_t most_bytes);
  // Memory of the file, which must exist. For writing it is locked: kUnavailable if another process
  // has locked it.
  A2mStorage(const std::string& path, std::size_t most_bytes, Access access);
  A2mStorage(A2mStorage&&) = delete;
  ~A2mStorage();

  std::byte* data() const noexcept { return data_; }
  // For any thread, while another one calls grow().
  std::size_t size() const noexcept { return size_.load(std::memory_order_acquire); }
  // The file's size when it was opened. Zeros follow, also within its last page.
  std::size_t found_bytes() const noexcept { return found_bytes_; }

  // Makes it at least so large, up to `most_bytes`; new bytes are zero.
  void grow(std::size_t bytes);
  // Zeroes the whole pages in between and frees their memory.
  void release(std::size_t from, std::size_t to) noexcept;
  // Writes it to the disk.
  void sync();

 private:
  void reserve();
  void map(std::size_t from, std::size_t to);

  const std::string path_;  // empty: memory of this process
  const std::size_t most_bytes_;
  const Access access_;
  int fd_ = -1;
  std::byte* data_ = nullptr;
  // Stored with release when the memory is there, loaded with acquire before it is used.
  std::atomic<std::size_t> size_ = 0;
  std::size_t found_bytes_ = 0;
};

}  // namespace leat::trusted::detail
