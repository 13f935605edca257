// Memory for keys: what the kernel is told of it, what a child of fork() sees, and what is left of
// it.
#include "base/secret_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/system_error.h"
#include "support/errors.h"
#include "support/scale.h"

namespace leat::detail {
namespace {

constexpr std::size_t kSecretBytes = 100;

// Of the mapping that holds an address, as /proc has them: "rd", "lo" and so on.
std::vector<std::string> flags_of(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    if (words >> std::hex >> begin >> dash >> end && dash == '-') {
      found = begin <= wanted && wanted < end;
    } else if (found && line.starts_with("VmFlags:")) {
      std::istringstream flags(line.substr(line.find(':') + 1));
      return {std::istream_iterator<std::string>(flags), {}};
    }
  }
  return {};
}

bool all_are(std::span<const std::byte> bytes, std::byte value) {
  return std::ranges::all_of(bytes, [&](std::byte byte) { return byte == value; });
}

void fill(const SecretMemory& memory, char value) {
  std::ranges::fill(memory.span(), static_cast<std::byte>(value));
}

// How `body` ends in a child of fork().
int status_in_child(const std::function<bool()>& body) {
  const pid_t child = check(::fork(), "fork");
  if (child == 0) std::_Exit(body() ? 0 : 1);
  int status = -1;
  check(::waitpid(child, &status, 0), "waitpid");
  return status;
}

// Where the limit of locked memory leaves no room, the class itself is not to be had.
class SecretMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      const SecretMemory memory(kSecretBytes);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

TEST_F(SecretMemoryTest, IsZeroedLockedAndNotDumped) {
  for (const std::size_t bytes : {std::size_t{1}, kSecretBytes, std::size_t{3} << 12}) {
    for (const bool lasting : {false, true}) {
      const SecretMemory memory = lasting ? SecretMemory::lasting(bytes) : SecretMemory(bytes);
      ASSERT_EQ(memory.span().size(), bytes);
      EXPECT_TRUE(all_are(memory.span(), std::byte{0}));
      for (const std::byte* page : {memory.span().data(), &memory.span().back()}) {
        const std::vector<std::string> flags = flags_of(page);
        if (flags.empty()) GTEST_SKIP() << "/proc/self/smaps says nothing of flags";
        EXPECT_THAT(flags, testing::Contains("dd"));
        if (!kSanitizer) {  // in place of mlock(), sanitizers have a function that does nothing
          EXPECT_THAT(flags, testing::Contains("lo"));
        }
      }
    }
  }
}

// Whether this kernel wipes memory on fork; before 4.14 none did.
bool kernel_wipes_on_fork() {
  const MappedMemory page = MappedMemory::anonymous(1);
  return ::madvise(page.data(), page.size(), MADV_WIPEONFORK) == 0;
}

TEST_F(SecretMemoryTest, IsEmptyInAChild) {
  if (!kernel_wipes_on_fork()) GTEST_SKIP() << "this kernel has no MADV_WIPEONFORK";
  const SecretMemory memory(3 << 12);
  fill(memory, 's');
  EXPECT_THAT(flags_of(memory.span().data()), testing::Contains("wf"));
  EXPECT_EQ(status_in_child([&] { return all_are(memory.span(), std::byte{0}); }), 0);
  EXPECT_TRUE(all_are(memory.span(), std::byte{'s'})) << "the parent keeps its own";
}

TEST_F(SecretMemoryTest, MovesWithItsContents) {
  SecretMemory memory(kSecretBytes);
  fill(memory, 's');
  const std::byte* const place = memory.span().data();
  std::optional<SecretMemory> first(std::move(memory));
  SecretMemory second(std::move(*first));
  first.reset();
  EXPECT_EQ(second.span().data(), place);
  EXPECT_TRUE(all_are(second.span(), std::byte{'s'}));
  second.wipe();
  EXPECT_TRUE(all_are(second.span(), std::byte{0}));
}

// Keeps a page from being freed and shows what has become of its bytes: vmsplice(2) puts the page
// itself into a pipe, not a copy of it.
class KeptPage {
 public:
  explicit KeptPage(std::span<std::byte> bytes) : bytes_(bytes.size()) {
    std::array<int, 2> ends{};
    check(::pipe2(ends.data(), O_CLOEXEC), "pipe2");
    reader_ = Fd(ends[0]);
    writer_ = Fd(ends[1]);
    const iovec part{bytes.data(), bytes.size()};
    taken_ = ::vmsplice(writer_.get(), &part, 1, 0) == static_cast<ssize_t>(bytes_);
  }
  // False where the kernel has no vmsplice().
  explicit operator bool() const { return taken_; }
  std::vector<std::byte> bytes_now() {
    std::vector<std::byte> bytes(bytes_);
    EXPECT_EQ(::read(reader_.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes_));
    return bytes;
  }

 private:
  const std::size_t bytes_;
  Fd reader_, writer_;
  bool taken_ = false;
};

TEST_F(SecretMemoryTest, IsOverwrittenBeforeItIsFreedOrReplaced) {
  const auto left_after = [](const std::function<void(std::optional<SecretMemory>&)>& action) {
    std::optional<SecretMemory> memory(std::in_place, kSecretBytes);
    fill(*memory, 's');
    KeptPage page(memory->span());
    std::vector<std::byte> left;
    if (page) {
      action(memory);
      left = page.bytes_now();
    }
    return left;
  };
  // The pipe shows what was written into the page later, not what it held first.
  if (!all_are(left_after([](auto& memory) { fill(*memory, 't'); }), std::byte{'t'}) ||
      left_after([](auto&) {}).empty())
    GTEST_SKIP() << "this kernel's vmsplice() copies";
  EXPECT_TRUE(all_are(left_after([](auto&) {}), std::byte{'s'}));
  EXPECT_TRUE(all_are(left_after([](auto& memory) { memory.reset(); }), std::byte{0}));
  EXPECT_TRUE(
      all_are(left_after([](auto& memory) { memory.emplace(kSecretBytes); }), std::byte{0}));
}

TEST(SecretMemoryLimit, IsAnErrorThatSaysHowToRaiseIt) {
  if (kSanitizer) GTEST_SKIP() << "a sanitizer's mlock() has no limit";
  for (const rlim_t limit : {rlim_t{0}, rlim_t{4096}}) {
    const int status = status_in_child([&] {
      const rlimit locked{limit, limit};
      check(::setrlimit(RLIMIT_MEMLOCK, &locked), "setrlimit");
      // Root's memory may be locked beyond every limit.
      constexpr uid_t kNobody = 65534;
      if (::geteuid() == 0) check(::setresuid(kNobody, kNobody, kNobody), "setresuid");
      const std::string said =
          error_of(ErrorCode::kResource, [] { const SecretMemory memory(std::size_t{1} << 20); });
      EXPECT_THAT(said, testing::AllOf(testing::HasSubstr("mlock"), testing::HasSubstr("ulimit -l"),
                                       testing::HasSubstr("LimitMEMLOCK")));
      return !testing::Test::HasFailure();
    });
    EXPECT_EQ(status, 0) << limit;
  }
}

}  // namespace
}  // namespace leat::detail
