// Many senders and one master whose memory for messages is fixed: nothing fails, nothing is lost.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "leat/group.h"
#include "support/group_side.h"
#include "support/pattern.h"

namespace leat::detail {
namespace {

constexpr std::size_t kBudgetBytes = std::size_t{4} << 20;

class GroupFloodTest : public GroupTest {
 protected:
  // On ib a connection takes a dozen descriptors, and a process has 1,024 by default; it is also
  // slow where there is no hardware for it.
  unsigned senders() const { return kind().device == "shm" ? 32 : 8; }
};

std::vector<ChannelKind> slot_kinds() {
  std::vector<ChannelKind> kinds;
  for (const ChannelKind& kind : group_kinds())
    if (kind.transport == "batched" || kind.transport == "confirm-each") kinds.push_back(kind);
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Groups, GroupFloodTest,
                         testing::Combine(testing::ValuesIn(slot_kinds()),
                                          testing::Values(PeerMode::kThreads, PeerMode::kProcesses),
                                          testing::Values(GroupSpin::kDefault, GroupSpin::kZero)),
                         group_test_name);

// Of this process, from /proc: "VmRSS", "VmHWM".
std::size_t memory_of(const std::string& field) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line))
    if (line.starts_with(field + ":")) return std::stoul(line.substr(field.size() + 1)) * 1024;
  throw std::runtime_error("no " + field + " in /proc/self/status");
}

// Every sender sends far more than there is memory for, without a pause, sizes from a byte to what
// takes many slots; the master starts late and is as slow as one thread is among so many.
TEST_P(GroupFloodTest, NothingFailsNothingIsLostMemoryStays) {
  const unsigned many = senders();
  const std::size_t messages = std::max<std::size_t>(scaled(400), 120) * 32 / many;
  const auto bytes_of = [](unsigned worker, std::size_t i) {
    return (i * 977 + worker * 131) % (i % 16 == 0 ? 60'000 : 2'000);
  };
  std::size_t all_bytes = 0;
  for (unsigned worker = 0; worker < many; ++worker)
    for (std::size_t i = 0; i < messages; ++i) all_bytes += bytes_of(worker, i);
  const Words go;
  run(
      many,
      [&](GroupMaster& master) {
        const std::uint64_t fixed = master.stats().slot_memory_bytes;
        EXPECT_GT(fixed, kBudgetBytes / 4) << "what there is is used";
        EXPECT_LE(fixed, kBudgetBytes);
        EXPECT_GT(all_bytes, 2 * kBudgetBytes) << "no flood";
        const std::size_t before = memory_of("VmRSS");
        go.tell("go", many);
        std::vector<std::size_t> counts(many);
        std::size_t ends = 0;
        while (const GroupMessage arrival = master.receive()) {
          if (arrival.end != nullptr) {
            EXPECT_TRUE(arrival.end->in_order) << arrival.end->reason;
            ++ends;
            continue;
          }
          const std::size_t i = counts[arrival.worker]++;
          expect_message(arrival.message, bytes_of(arrival.worker, i), i);
        }
        EXPECT_EQ(ends, many);
        EXPECT_EQ(counts, std::vector<std::size_t>(many, messages));
        EXPECT_EQ(master.stats().slot_memory_bytes, fixed) << "fixed when connecting";
        // The slots, now touched, and what puts large messages together, one for each sender. As
        // threads the senders are in the same process; a sanitizer keeps what is freed.
        if (has_processes() && !kSanitizer) {
          constexpr std::size_t kAllowance = std::size_t{8} << 20;
          EXPECT_LT(memory_of("VmHWM"), before + fixed + many * 60'000 + kAllowance);
        }
      },
      [&](GroupWorker& worker) {
        EXPECT_EQ(go.hear(), "go");
        std::vector<std::byte> message;
        for (std::size_t i = 0; i < messages; ++i) {
          message.resize(bytes_of(worker.rank(), i));
          fill_pattern(message, i);
          worker.send(message);
        }
        worker.channel().shutdown();
        EXPECT_FALSE(worker.receive());
      },
      {.master = [many](Options& options) {
        options = with_slot_memory(kBudgetBytes, many, options);
      }});
}

}  // namespace
}  // namespace leat::detail
