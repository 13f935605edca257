#include "base/mapped_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.h"
#include "base/system_error.h"

namespace leat::detail {
namespace {

constexpr std::size_t kHuge = MappedMemory::kHugePageBytes;

Fd file_of(std::size_t bytes) {
  Fd fd(check(memfd_create("leat-test", MFD_CLOEXEC), "memfd_create"));
  check(ftruncate(fd.get(), static_cast<off_t>(bytes)), "ftruncate");
  return fd;
}

TEST(MappedMemoryTest, LargeMappingsBeginWhereHugePagesCan) {
  for (const std::size_t bytes : {kHuge, kHuge + 4096, 5 * kHuge + 5}) {
    const Fd fd = file_of(bytes);
    const auto memory =
        MappedMemory::of_file(fd.get(), bytes, MappedMemory::Protection::kReadWrite);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % kHuge, 0U);
    EXPECT_EQ(memory.size(), bytes);
    memory.span().front() = std::byte{1};
    memory.span().back() = std::byte{2};
  }
}

// Whether the kernel has huge pages for it or not: the bytes stay, for all who map the file.
TEST(MappedMemoryTest, TakingHugePagesKeepsTheBytes) {
  const Fd fd = file_of(3 * kHuge);
  auto one = MappedMemory::of_file(fd.get(), 3 * kHuge, MappedMemory::Protection::kReadWrite);
  const auto other =
      MappedMemory::of_file(fd.get(), 3 * kHuge, MappedMemory::Protection::kReadWrite);
  for (std::size_t i = 0; i < one.size(); i += 1000)
    one.data()[i] = static_cast<std::byte>(i / 1000);
  one.take_huge_page(0);
  one.take_huge_page(kHuge + 4096);
  for (std::size_t i = 0; i < one.size(); i += 1000)
    ASSERT_EQ(other.data()[i], static_cast<std::byte>(i / 1000)) << i;
  other.data()[kHuge] = std::byte{77};
  EXPECT_EQ(one.data()[kHuge], std::byte{77});
}

TEST(MappedMemoryTest, RefusesAHugePageThatTheMappingEndsIn) {
  const Fd fd = file_of(kHuge + 4096);
  auto memory = MappedMemory::of_file(fd.get(), kHuge + 4096, MappedMemory::Protection::kReadWrite);
  EXPECT_FALSE(memory.take_huge_page(kHuge));
  EXPECT_FALSE(memory.take_huge_page(7 * kHuge));
}

}  // namespace
}  // namespace leat::detail
