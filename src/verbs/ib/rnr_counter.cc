#include "verbs/ib/rnr_counter.h"

#include <fstream>

namespace leat::detail {
namespace {

// What drivers call the "receiver not ready" answers that came in: rxe, mlx5.
constexpr const char* kNames[] = {"rcvd_rnr_err", "rnr_nak_retry_err"};

bool read_number(const std::string& path, std::uint64_t& number) {
  std::ifstream file(path);
  return static_cast<bool>(file >> number);
}

}  // namespace

IbRnrCounter::IbRnrCounter(const std::string& verbs_name, unsigned port) {
  const std::string folder =
      "/sys/class/infiniband/" + verbs_name + "/ports/" + std::to_string(port) + "/hw_counters/";
  for (const char* name : kNames) {
    if (!read_number(folder + name, before_)) continue;
    path_ = folder + name;
    return;
  }
}

std::uint64_t IbRnrCounter::get() const noexcept {
  if (path_.empty()) return 0;
  try {
    std::uint64_t now = 0;
    return read_number(path_, now) && now > before_ ? now - before_ : 0;
  } catch (const std::exception&) {
    return 0;  // out of memory: a statistic is not worth an error
  }
}

}  // namespace leat::detail
