// A master and its workers, and the fixture that brings them together.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <tuple>

#include "base/fd.h"
#include "leat/group.h"
#include "support/channel_side.h"

namespace leat::detail {

// Short words from any side of a test to any other, by a pipe: between threads and between
// processes.
class Words {
 public:
  Words();

  // `times`: how many will hear it.
  void tell(const std::string& word, unsigned times = 1) const;
  // The next one. Throws std::runtime_error after hang_limit().
  std::string hear() const;

 private:
  Fd reading_;
  Fd writing_;
};

enum class GroupSpin { kDefault, kZero };

struct GroupSetup {
  std::function<void(Options&)> master = {};
  std::function<void(Options&)> worker = {};
  // Party 0 is the master, party r + 1 the worker with rank r.
  std::optional<unsigned> killed = {};
};

// Parameters: what carries the group, threads or processes, how it waits.
class GroupTest : public testing::TestWithParam<std::tuple<ChannelKind, PeerMode, GroupSpin>> {
 protected:
  const ChannelKind& kind() const { return std::get<0>(GetParam()); }
  PeerMode mode() const { return std::get<1>(GetParam()); }
  bool has_processes() const { return mode() == PeerMode::kProcesses; }
  Options options() const;
  GroupWorkerOptions worker_options(std::optional<unsigned> rank) const;

  void run(unsigned workers, const std::function<void(GroupMaster&)>& master,
           const std::function<void(GroupWorker&)>& worker, const GroupSetup& setup = {}) const;
};

std::string group_test_name(const testing::TestParamInfo<GroupTest::ParamType>& parameters);
// For a suite with one mode only: a filter that leaves the other mode out leaves it in.
std::string group_test_name_without_mode(
    const testing::TestParamInfo<GroupTest::ParamType>& parameters);

// Every transport but planned, which for a group is ring.
std::vector<ChannelKind> group_kinds();

#define LEAT_INSTANTIATE_GROUP_SUITE(suite)                                       \
  INSTANTIATE_TEST_SUITE_P(                                                       \
      Groups, suite,                                                              \
      testing::Combine(testing::ValuesIn(group_kinds()),                          \
                       testing::Values(PeerMode::kThreads, PeerMode::kProcesses), \
                       testing::Values(GroupSpin::kDefault, GroupSpin::kZero)),   \
      group_test_name)

// SIGKILL to the calling process.
[[noreturn]] void die();

}  // namespace leat::detail
