// Linked into every test program: with LEAT_TEST_LATE=SEED in its environment what it knows as shm
// is a late device (support/late_device.h), whose inline size comes from the seed and differs from
// device to device of a process. Words may follow: with LEAT_TEST_LATE=SEED,small so do the lengths
// of its queues; with SEED,orderly nothing completes before its bytes are visible.
#include <gtest/gtest.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>
#include <utility>

#include "support/late_device.h"
#include "verbs/table.h"

namespace leat::detail {
namespace {

std::uint64_t seed = 0;
bool small = false;
bool orderly = false;
std::atomic<std::uint64_t> devices{0};

std::unique_ptr<Device> make_late(std::unique_ptr<Device> device) {
  constexpr std::size_t kInlineBytes[] = {8, 16, 32, 64, 220};
  constexpr std::size_t kSendRequests[] = {16, 33, 64, 256};
  constexpr std::size_t kReceiveRequests[] = {64, 100, 256, 1024};
  // Relaxed: only a number of its own for each.
  std::mt19937_64 random(seed * 1000 + devices.fetch_add(1, std::memory_order_relaxed));
  const auto one_of = [&](const auto& sizes) { return sizes[random() % std::size(sizes)]; };
  LateProfile profile;
  profile.max_inline_bytes = one_of(kInlineBytes);
  if (small) {
    profile.max_send_requests = one_of(kSendRequests);
    profile.max_receive_requests = one_of(kReceiveRequests);
  }
  profile.completes_early = !orderly;
  profile.seed = random();
  return make_late_device(std::move(device), profile);
}

class TellsTheSeed final : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& test) override {
    if (test.result()->Failed())
      std::printf("on late devices: LEAT_TEST_LATE=%s\n", std::getenv("LEAT_TEST_LATE"));
  }
};

const bool late = [] {
  const char* text = std::getenv("LEAT_TEST_LATE");
  if (text == nullptr || *text == '\0') return false;
  const char* end = text + std::strlen(text);
  const std::string_view words(std::from_chars(text, end, seed).ptr, end);
  small = words.find(",small") != words.npos;
  orderly = words.find(",orderly") != words.npos;
  decorate_devices(&make_late);
  testing::UnitTest::GetInstance()->listeners().Append(new TellsTheSeed);
  return true;
}();

}  // namespace
}  // namespace leat::detail
