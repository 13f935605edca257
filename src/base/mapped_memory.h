// Owned memory of whole pages: anonymous, or a mapping of a file descriptor.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace leat::detail {

class MappedMemory {
 public:
  enum class Protection { kReadOnly, kReadWrite };
  static constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

  MappedMemory() = default;
  // At least `bytes` of private zeroed pages, which the system provides when they are first
  // touched. Throws kResource.
  static MappedMemory anonymous(std::size_t bytes);
  // A shared mapping of `bytes` of `fd` from its start. The descriptor may be closed afterwards.
  // From kHugePageBytes on it begins at a multiple of that, so that huge pages can be mapped.
  static MappedMemory of_file(int fd, std::size_t bytes, Protection protection);

  MappedMemory(MappedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  ~MappedMemory();

  // Takes the memory of the huge page that holds byte `offset` from the system now, as one page,
  // for all processes that map the same file. Returns false if the kernel or this mapping cannot do
  // that; small pages serve instead.
  bool take_huge_page(std::size_t offset) noexcept;

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return bytes_; }
  std::span<std::byte> span() const noexcept { return {data_, bytes_}; }

 private:
  MappedMemory(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace leat::detail
