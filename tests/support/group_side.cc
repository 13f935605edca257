#include "support/group_side.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <stdexcept>

#include "base/system_error.h"

namespace leat::detail {
namespace {

using Word = std::array<char, 64>;  // goes through a pipe whole

const char* spin_suffix(GroupSpin spin) { return spin == GroupSpin::kZero ? "_spin0" : ""; }

}  // namespace

Words::Words() {
  std::array<int, 2> ends{};
  check(::pipe2(ends.data(), O_CLOEXEC), "pipe2");
  reading_ = Fd(ends[0]);
  writing_ = Fd(ends[1]);
  check(::fcntl(reading_.get(), F_SETFL, O_NONBLOCK), "fcntl");
}

void Words::tell(const std::string& word, unsigned times) const {
  Word packet{};
  if (word.size() >= packet.size()) throw std::invalid_argument("a word too long");
  std::memcpy(packet.data(), word.data(), word.size());
  for (unsigned i = 0; i < times; ++i)
    check(static_cast<int>(::write(writing_.get(), packet.data(), packet.size())), "write");
}

std::string Words::hear() const {
  const Deadline deadline = hang_deadline();
  Word packet{};
  while (::read(reading_.get(), packet.data(), packet.size()) <= 0) {
    if (passed(deadline)) throw std::runtime_error("nobody says a word");
    pollfd wait{reading_.get(), POLLIN, 0};
    ::poll(&wait, 1, poll_timeout_ms(deadline));
  }
  return packet.data();
}

Options GroupTest::options() const {
  Options options = channel_options(kind());
  if (std::get<2>(GetParam()) == GroupSpin::kZero) options.spin = std::chrono::microseconds(0);
  // Small enough to be filled, and as large as the transports with slots have it.
  options.ring_bytes = std::size_t{1} << 20;
  return options;
}

GroupWorkerOptions GroupTest::worker_options(std::optional<unsigned> rank) const {
  GroupWorkerOptions result;
  result.rank = rank;
  result.options = options();
  return result;
}

void GroupTest::run(unsigned workers, const std::function<void(GroupMaster&)>& master,
                    const std::function<void(GroupWorker&)>& worker,
                    const GroupSetup& setup) const {
  const Words addresses;
  run_parties(
      mode(), workers + 1,
      [&](unsigned party) {
        if (party == 0) {
          Options all = options();
          if (setup.master) setup.master(all);
          Listener listener(listening_address(kind()), all);
          addresses.tell(listener.address(), workers);
          GroupMaster group = GroupMaster::accept(listener, workers);
          listener.close();
          EXPECT_EQ(group.size(), workers);
          EXPECT_EQ(group.alive(), workers);
          EXPECT_EQ(group.channel(0).transport(), kind().transport);
          master(group);
        } else {
          GroupWorkerOptions all = worker_options(party - 1);
          if (setup.worker) setup.worker(all.options);
          GroupWorker member = GroupWorker::connect(addresses.hear(), all);
          EXPECT_EQ(member.rank(), party - 1);
          EXPECT_EQ(member.size(), workers);
          worker(member);
        }
      },
      setup.killed);
}

std::string group_test_name(const testing::TestParamInfo<GroupTest::ParamType>& parameters) {
  return testing::PrintToString(std::get<0>(parameters.param)) + "_" +
         to_string(std::get<1>(parameters.param)) + spin_suffix(std::get<2>(parameters.param));
}

std::string group_test_name_without_mode(
    const testing::TestParamInfo<GroupTest::ParamType>& parameters) {
  return testing::PrintToString(std::get<0>(parameters.param)) +
         spin_suffix(std::get<2>(parameters.param));
}

std::vector<ChannelKind> group_kinds() {
  std::vector<ChannelKind> kinds = channel_kinds();
  std::erase_if(kinds, [](const ChannelKind& kind) { return kind.transport == "planned"; });
  return kinds;
}

void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

}  // namespace leat::detail
