// The configuration service of a chain, its nodes and a client in this process, with reports that
// come late, and with liars and nodes that never report.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "leat/error.h"
#include "leat/trusted/configuration.h"
#include "trusted/configured.h"
#include "trusted/doubles.h"
#include "trusted/parts/history.h"
#include "trusted/schedule.h"

namespace leat::trusted {
namespace {

using namespace detail;
using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kPatience = 400ms;

class Pool final {
 public:
  explicit Pool(std::size_t liars, unsigned seed = 1)
      : schedule(seed),
        directory_(parties(kParties)),
        options_{.service = kService,
                 .pool = {2, 3, 4, 5, 6},
                 .length = 3,
                 .liars = liars,
                 .chain = {.first_session = kFirstSession, .checkpoint_records = 4},
                 .patience = kPatience} {
    for (PartyId id = 1; id <= kParties; ++id) keys_.push_back(key_of(id));
    const auto kernels = [this](const Configuration& its) {
      if (its.epoch > provisioned || its.epoch == left_out)
        throw Error(ErrorCode::kUnavailable, "no such epoch");
      return kernels_of(kService)(its);
    };
    schedule.add(kService, std::make_unique<ConfigurationService>(
                               directory_, keys_[0], make_store, kernels, options_,
                               [this](const Configuration& now) { configuration = now; },
                               [this](const Fault& fault) { faults.push_back(fault); }));
    for (PartyId id = 2; id <= kParties; ++id) schedule.add(id, member(id));
    auto its = std::make_unique<ScheduledClient>(kClient, directory_, std::vector<PartyId>{}, 0, 0,
                                                 kService);
    client = its.get();
    schedule.add(kClient, std::move(its));
  }

  std::unique_ptr<ChainMember> member(PartyId id) {
    const auto kernels = [this, id](const Configuration& its) {
      if (its.epoch == members_left_out) throw Error(ErrorCode::kUnavailable, "no such epoch");
      return kernels_of(id)(its);
    };
    return std::make_unique<ChainMember>(id, directory_, keys_[id - 1], make_store, kernels,
                                         options_);
  }
  void replace(PartyId id, Deviant::Change change) {
    schedule.add(id, std::make_unique<Deviant>(member(id), keys_[id - 1], std::move(change)));
  }
  // The answer that the client believes; no value if it believes none in that time.
  std::optional<Bytes> call(const Bytes& command, std::chrono::milliseconds most = 1min) {
    client->submit({command});
    return answer(most);
  }
  std::optional<Bytes> answer(std::chrono::milliseconds most = 1min) {
    std::optional<Answer> answer;
    schedule.run_until([&] { return answer || (answer = client->take()); }, most);
    return answer ? std::optional(answer->outputs.front()) : std::nullopt;
  }
  bool exposed(PartyId node) const {
    return std::ranges::any_of(faults, [node](const Fault& fault) {
      return fault.accused == node && fault.kind != FaultKind::kSilent;
    });
  }
  std::size_t silences(PartyId node) const {
    return static_cast<std::size_t>(std::ranges::count_if(faults, [node](const Fault& fault) {
      return fault.accused == node && fault.kind == FaultKind::kSilent;
    }));
  }

  Schedule schedule;
  Configuration configuration;
  std::vector<Fault> faults;
  ScheduledClient* client = nullptr;
  std::uint64_t provisioned = UINT64_MAX;  // the last epoch for which the service gets an attestor
  std::uint64_t members_left_out = 0;      // for which no member gets one
  std::uint64_t left_out = 0;              // and one for which it gets none

 private:
  const Directory directory_;
  const ConfigurationOptions options_;
  std::vector<SigningKey> keys_;
};

// Tells that it has executed nothing, whatever it has.
bool forgets(const SigningKey&, PartyId, Bytes& message, Outbox&) {
  if (const auto history = read_history(message))
    message = write_history(history->epoch, History(3).proof());
  return true;
}

const Bytes kPut = KeyValueMachine::put("a", "1"), kGet = KeyValueMachine::get("a");

// The client's next request is stuck: the chain must be replaced.
void get_stuck(Pool& pool) { pool.schedule.cut = {{2, 3}, {3, 4}}; }

TEST(ReconfigurationSchedule, what_was_believed_is_kept_if_the_only_correct_node_reports_late) {
  Pool pool(2);
  for (const PartyId liar : {2U, 3U}) pool.replace(liar, forgets);
  ASSERT_TRUE(pool.call(kPut));
  get_stuck(pool);
  pool.schedule.held = {{4, kService}};
  // However long it takes, nothing else is believed meanwhile.
  EXPECT_FALSE(pool.call(kGet, 10 * kPatience));
  EXPECT_EQ(pool.configuration.epoch, 1U);
  EXPECT_EQ(pool.silences(4), 1U) << "the service says for whom it waits, once";
  pool.schedule.held.clear();
  const auto answer = pool.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(KeyValueMachine::value_of(*answer), "1");
  EXPECT_GT(pool.configuration.epoch, 1U);
  EXPECT_FALSE(pool.exposed(4));
}

// With fewer liars the service needs fewer histories, and a node may be silent for ever.
TEST(ReconfigurationSchedule, beside_one_liar_one_node_may_be_silent_for_ever) {
  Pool pool(1);
  pool.replace(2, forgets);
  ASSERT_TRUE(pool.call(kPut));
  pool.schedule.kill(4);
  const auto answer = pool.call(kGet);
  ASSERT_TRUE(answer);
  EXPECT_EQ(KeyValueMachine::value_of(*answer), "1");
}

// A liar that is exposed is one less that can lie.
TEST(ReconfigurationSchedule, the_history_of_a_node_suffices_when_all_liars_are_exposed) {
  Pool pool(1);
  pool.replace(3, [](const SigningKey&, PartyId, Bytes& message, Outbox&) {
    if (read_history(message)) message.back() ^= std::byte{1};
    return true;
  });
  ASSERT_TRUE(pool.call(kPut));
  pool.schedule.kill(2);
  const auto answer = pool.call(kGet);
  ASSERT_TRUE(answer);
  EXPECT_EQ(KeyValueMachine::value_of(*answer), "1");
  EXPECT_TRUE(pool.exposed(3));
}

// A node that was started again knows nothing of its epoch, says so, and is not taken for one that
// executed nothing: else it and a liar would be two that report.
TEST(ReconfigurationSchedule, a_node_that_lost_its_history_does_not_count_as_one_that_reports) {
  Pool pool(1);
  pool.replace(2, forgets);
  ASSERT_TRUE(pool.call(kPut));
  pool.schedule.held = {{4, kService}};
  pool.schedule.kill(3);
  pool.schedule.add(3, pool.member(3));
  EXPECT_FALSE(pool.call(kGet, 10 * kPatience));
  EXPECT_EQ(pool.configuration.epoch, 1U);
  pool.schedule.held.clear();
  const auto answer = pool.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(KeyValueMachine::value_of(*answer), "1");
}

// It is the one that fails, so all others that there can be have reported.
TEST(ReconfigurationSchedule, the_service_does_not_wait_for_a_node_that_lost_its_history) {
  Pool pool(2);
  ASSERT_TRUE(pool.call(kPut));
  pool.schedule.kill(3);
  EXPECT_FALSE(pool.call(kGet, 10 * kPatience)) << "it may have more than all others";
  pool.schedule.add(3, pool.member(3));
  const auto answer = pool.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(KeyValueMachine::value_of(*answer), "1");
}

// It joins, and at once says that it has started again.
TEST(ReconfigurationSchedule, a_node_that_ends_each_epoch_as_it_begins_goes) {
  for (const PartyId liar : {2U, 3U, 4U}) {
    Pool pool(2);
    pool.replace(liar, [](const SigningKey&, PartyId to, Bytes& message, Outbox& outbox) {
      const auto epoch = read_epoch(message, ConfigurationMessage::kJoin);
      if (epoch && *epoch > 0) {
        outbox.send(to, message);
        message = write_epoch(ConfigurationMessage::kJoin, 0);
      }
      return true;
    });
    EXPECT_TRUE(pool.call(kPut)) << liar;
    EXPECT_EQ(std::ranges::count(pool.configuration.nodes, liar), 0) << liar;
    EXPECT_GE(pool.silences(liar), 1U) << liar;
  }
}

// Until somebody provisions it; then it goes on by itself.
TEST(ReconfigurationSchedule, a_service_without_an_attestor_for_the_next_epoch_waits_for_one) {
  Pool pool(2);
  pool.provisioned = 1;
  ASSERT_TRUE(pool.call(kPut));
  EXPECT_EQ(pool.configuration.epoch, 1U);
  pool.schedule.kill(3);
  pool.schedule.add(3, pool.member(3));
  EXPECT_FALSE(pool.call(kGet, 10 * kPatience));
  EXPECT_EQ(pool.configuration.epoch, 1U);
  pool.provisioned = 2;
  const auto answer = pool.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(KeyValueMachine::value_of(*answer), "1");
  EXPECT_EQ(pool.configuration.epoch, 2U);
}

// Its number was used up when its provisioning failed.
TEST(ReconfigurationSchedule, an_epoch_without_an_attestor_is_left_out) {
  Pool pool(2);
  pool.left_out = 2;
  ASSERT_TRUE(pool.call(kPut));
  pool.schedule.kill(3);
  pool.schedule.add(3, pool.member(3));
  ASSERT_TRUE(pool.call(kGet));
  EXPECT_EQ(pool.configuration.epoch, 3U);
}

TEST(ReconfigurationSchedule, an_epoch_that_no_member_can_begin_is_left_out) {
  Pool pool(2);
  pool.members_left_out = 2;
  ASSERT_TRUE(pool.call(kPut));
  pool.schedule.kill(3);
  pool.schedule.add(3, pool.member(3));
  EXPECT_TRUE(pool.call(kGet, 5min));
  EXPECT_EQ(pool.configuration.epoch, 3U);
}

TEST(ReconfigurationSchedule, a_chain_has_more_nodes_than_liars) {
  EXPECT_THROW(Pool(3), Error);
  EXPECT_NO_THROW(Pool(2));
  EXPECT_NO_THROW(Pool(0));
}

// What a member of a chain of its own sends.
struct Sent final : Outbox {
  void send(PartyId to, View message) override { messages.emplace_back(to, copy_of(message)); }
  static Bytes copy_of(View message) { return {message.begin(), message.end()}; }
  std::vector<std::pair<PartyId, Bytes>> messages;
};

// Clients hear of a chain at the same time as its head hears that all have begun: their requests
// may be there first.
TEST(ReconfigurationSchedule, a_request_that_comes_before_the_chain_may_begin_is_not_left_out) {
  const Directory directory(parties(kParties));
  const SigningKey key = key_of(2), service_key = key_of(kService), client_key = key_of(kClient);
  const ConfigurationOptions options{.service = kService,
                                     .pool = {2},
                                     .length = 1,
                                     .chain = {.first_session = kFirstSession},
                                     .patience = kPatience};
  ChainMember member(2, directory, key, make_store, kernels_of(2), options);
  Quorum quorum(directory, client_key, {.self = kClient, .epoch = 1, .nodes = {2}, .quorum = 1},
                1000);
  Sent sent;
  const Participant::Time now{1h};
  const auto answers = [&] {
    return std::ranges::count(sent.messages, kClient, &std::pair<PartyId, Bytes>::first);
  };
  const Configuration configuration{1, {2}};
  member.receive(
      kService,
      write_configuration(sign_configuration(service_key, configuration, digest_of({})), View()),
      now, sent);
  member.receive(kClient, quorum.submit({{kPut}}), now, sent);
  member.settle(now, sent);
  member.idle(now, sent);
  EXPECT_EQ(answers(), 0) << "it began too early";
  member.receive(kService, write_epoch(ConfigurationMessage::kEnable, 1), now, sent);
  member.receive(kClient, quorum.submit({{kGet}}), now, sent);
  member.settle(now, sent);
  member.idle(now, sent);
  for (const auto& [to, message] : sent.messages)
    if (to == kClient) quorum.receive(message);
  const auto put = quorum.take(), get = quorum.take();
  ASSERT_TRUE(put && get) << "the first request was left out for ever";
  EXPECT_EQ(KeyValueMachine::value_of(get->outputs.front()), "1");
}

}  // namespace
}  // namespace leat::trusted
