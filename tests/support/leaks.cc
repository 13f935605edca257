#include "support/leaks.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>

#include "support/scale.h"

namespace leat::detail {
namespace {

// Entries of `folder` whose name has `part` in it.
std::size_t count_entries(const char* folder, const std::string& part = {}) {
  std::error_code error;
  std::size_t count = 0;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (entry->path().filename().string().find(part) != std::string::npos) ++count;
  }
  return count;
}

std::size_t count_shared_maps() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:") != line.npos || line.find("/dev/shm/") != line.npos) ++count;
  }
  return count;
}

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t total_pages = 0;
  std::size_t resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return resident_pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

bool holds_more(const Holdings& now, const Holdings& before) {
  return now.descriptors > before.descriptors || now.memfd_maps > before.memfd_maps ||
         now.shm_entries > before.shm_entries || now.threads > before.threads;
}

}  // namespace

void PrintTo(const Holdings& holdings, std::ostream* out) {
  *out << holdings.descriptors << " descriptors, " << holdings.memfd_maps << " shared maps, "
       << holdings.shm_entries << " files in /dev/shm, " << holdings.threads << " threads, "
       << holdings.resident_bytes / 1024 << " KiB resident";
}

Holdings count_holdings() {
  return {count_entries("/proc/self/fd"), count_shared_maps(), count_entries("/dev/shm", "leat"),
          count_entries("/proc/self/task"), resident_bytes()};
}

void expect_no_more_than(const Holdings& before, std::size_t allowed_growth_bytes) {
  const Deadline deadline = notice_deadline();
  Holdings now = count_holdings();
  while (holds_more(now, before) && !passed(deadline)) {
    ::poll(nullptr, 0, 10);
    now = count_holdings();
  }
  EXPECT_FALSE(holds_more(now, before))
      << "before: " << testing::PrintToString(before) << "\nnow: " << testing::PrintToString(now);
  if constexpr (!kSanitizer) {
    EXPECT_LE(now.resident_bytes, before.resident_bytes + allowed_growth_bytes);
  }
}

}  // namespace leat::detail
