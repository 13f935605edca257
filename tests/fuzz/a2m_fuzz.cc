// The file of a log: bytes from anyone who can write to the disk. Whatever they are, a look-up that
// verifies returns what the attestation kernel attested.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/property.h"
#include "leat/error.h"
#include "leat/trusted/a2m.h"

namespace {

using namespace leat::trusted;

constexpr std::uint32_t kManifest = 1, kLog = 2;
constexpr std::string_view kContexts[] = {"first", "", "third", "the fourth"};

LocalKernel& kernel() {
  static LocalKernel& made = []() -> LocalKernel& {
    static LocalKernel local(1, 1);
    for (const std::uint32_t id : {kManifest, kLog}) {
      const std::vector<std::byte> key(32, std::byte(id));
      local.provision({.id = id, .role = Role::kLog, .key = key});
    }
    local.enable();
    return local;
  }();
  return made;
}

// In memory where there is such a folder: no disk need turn.
MemoryOptions options() {
  static const std::string folder = [] {
    std::string name = "/dev/shm/leat-a2m-fuzz-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) {
      name = "/tmp/leat-a2m-fuzz-XXXXXX";
      if (mkdtemp(name.data()) == nullptr) std::abort();
    }
    static std::string removed = name;
    std::atexit([] {
      for (const char* file : {"/log-1.a2m", "/log-2.a2m"}) unlink((removed + file).c_str());
      rmdir(removed.c_str());
    });
    return name;
  }();
  return {.folder = folder,
          .manifest = kManifest,
          .max_manifest_entries = 16,
          .logs = {{.session = kLog, .max_context_bytes = 16, .max_entries = 64}}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using leat::detail::require;
  // What the kernel attested, once: four entries, whose file is the corpus.
  static const bool attested = [] {
    auto in_memory = options();
    in_memory.folder.clear();
    AttestedMemory memory(kernel(), in_memory);
    for (const auto context : kContexts) memory.append(kLog, std::as_bytes(std::span(context)));
    return true;
  }();
  require(attested, "the kernel attests");

  const std::string path = options().folder + "/log-2.a2m";
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  require(fd >= 0 && write(fd, data, size) == static_cast<ssize_t>(size), "the file is written");
  close(fd);
  try {
    AttestedMemory memory(kernel(), options());
    require(memory.bounds(kLog).tail == std::size(kContexts), "the kernel says how many there are");
    require(memory.bounds(kLog).head == 0, "and the MANIFEST from where");
    Record record;
    for (std::uint64_t i = 0; i < 6; ++i) {
      const LookupStatus status = memory.lookup(kLog, i, record);
      require((status == LookupStatus::kUnassigned) == (i >= std::size(kContexts)), "the tail");
      if (status != LookupStatus::kAssigned ||
          kernel().verify_stateless(record, Kind::kLog) != Verdict::kOk)
        continue;
      const auto entry = read_entry(record);
      require(entry && entry->index == i && entry->context.size() == kContexts[i].size() &&
                  std::equal(entry->context.begin(), entry->context.end(),
                             std::as_bytes(std::span(kContexts[i])).begin()),
              "an entry that verifies is what was appended");
    }
    require(memory.check(kLog).lost <= std::size(kContexts), "no more is lost than was there");
  } catch (const leat::Error& error) {
    require(error.code() == leat::ErrorCode::kInvalidArgument ||
                error.code() == leat::ErrorCode::kTooLarge,
            "a file that cannot be opened is said to be wrong");
  }
  return 0;
}
