// What the tests of trusted systems under seeded faults have alike: liars, faults of links, and
// what clients believed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trusted/doubles.h"
#include "trusted/forwarding_kernel.h"
#include "trusted/parts/configuration_messages.h"
#include "trusted/parts/history.h"
#include "trusted/peer_review/messages.h"
#include "trusted/schedule.h"

namespace leat::trusted {

// Numbers of a run. The same seed makes the same run, on every machine.
class Draw final {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  // From 0 to below `end`.
  unsigned below(unsigned end) { return static_cast<unsigned>(random_()) % end; }
  bool chance(unsigned percent) { return below(100) < percent; }
  template <typename Value>
  Value& of(std::vector<Value>& values) {
    return values[below(static_cast<unsigned>(values.size()))];
  }

 private:
  std::mt19937 random_;
};

// The seeds of a run of the test: `usual` of them from 0 on, or LEAT_TEST_SEEDS="FIRST COUNT".
template <typename Run>
void for_seeds(unsigned usual, Run&& run) {
  unsigned first = 0, count = usual;
  if (const char* text = std::getenv("LEAT_TEST_SEEDS")) {
    char* rest = nullptr;
    first = static_cast<unsigned>(std::strtoul(text, &rest, 10));
    count = static_cast<unsigned>(std::strtoul(rest, nullptr, 10));
  }
  for (unsigned seed = first; seed - first < count && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("LEAT_TEST_SEEDS=\"" + std::to_string(seed) + " 1\"");
    run(seed);
  }
}

// What a node attested, once, instead of what it believes.
class AttestedLie final {
 public:
  // Lies after so many true records.
  void tell_after(unsigned records) { left_ = records; }
  bool is_told() const { return !lie_.empty(); }
  bool is_next() { return !is_told() && left_-- == 0; }
  void tell(const Proof& proof, View truth, View lie) {
    for (auto [record, its] : {std::pair(&truth_, truth), {&lie_, lie}}) {
      record->resize(its.size() + kRecordOverheadBytes);
      write_record(proof, its, *record);
    }
  }
  // What the node sends is made to match.
  void put_into(const SigningKey& key, Bytes& message) const {
    if (!is_told()) return;
    const auto at = std::search(message.begin(), message.end(), truth_.begin(), truth_.end());
    if (at == message.end()) return;
    std::ranges::copy(lie_, at);
    const auto piece = detail::read_piece(message);
    if (!piece) return;
    Bytes entries;
    for (const auto& [record, received] : piece->entries) {
      std::vector<Bytes> copies;
      for (const View one : received) copies.emplace_back(one.begin(), one.end());
      detail::append_entry(entries, record, copies);
    }
    message = detail::write_piece(key, *piece, entries);
  }

 private:
  unsigned left_ = 0;
  Bytes truth_, lie_;
};

// The kernel of a node that attests a lie.
class LyingKernel final : public ForwardingKernel {
 public:
  LyingKernel(std::unique_ptr<AttestationKernel> kernel, AttestedLie& lie)
      : ForwardingKernel(*kernel), owned_(std::move(kernel)), lie_(lie) {}

  Verdict attest(const Statement& statement, View payload, Proof& proof) noexcept override {
    if (payload.empty() || !lie_.is_next())
      return ForwardingKernel::attest(statement, payload, proof);
    Bytes other(payload.begin(), payload.end());
    other.back() ^= std::byte{1};
    const Verdict verdict = ForwardingKernel::attest(statement, other, proof);
    lie_.tell(proof, payload, other);
    return verdict;
  }

 private:
  const std::unique_ptr<AttestationKernel> owned_;
  AttestedLie& lie_;
};

constexpr std::uint64_t kLiedValue = 1'000'000;  // more than any run counts
enum class Lie { kNone, kAttests, kReplies, kDrops, kFlips, kRepeats, kForgets };

// What a liar sends instead.
inline Deviant::Change liar_of(Lie lie, Draw& draw, const AttestedLie& attested) {
  return [lie, &draw, &attested, old = std::deque<Bytes>()](
             const SigningKey& key, PartyId to, Bytes& message, Outbox& outbox) mutable {
    switch (lie) {
      case Lie::kNone:
        break;
      case Lie::kAttests:
        attested.put_into(key, message);
        break;
      case Lie::kReplies:
        if (auto content = detail::read_signed(message, MessageType::kReply)) {
          Bytes outputs;
          for (std::size_t i = 0; i < content->items.count(); ++i)
            Items::append(outputs, CounterMachine::add(kLiedValue + i));
          content->items = *Items::read(outputs, content->items.count());
          message = detail::write_signed(key, *content);
        }
        break;
      case Lie::kDrops:
        return !draw.chance(30);
      case Lie::kFlips:
        if (draw.chance(20) && !message.empty())
          message[draw.below(static_cast<unsigned>(message.size()))] ^= std::byte{1};
        break;
      case Lie::kRepeats:
        if (!old.empty() && draw.chance(30))
          outbox.send(to, old[draw.below(static_cast<unsigned>(old.size()))]);
        old.push_back(message);
        if (old.size() > 20) old.pop_front();
        break;
      case Lie::kForgets:  // says that it executed nothing, in chains of three
        if (const auto history = detail::read_history(message))
          message = detail::write_history(history->epoch, detail::History(3).proof());
        break;
    }
    return true;
  };
}

// The answers that clients of a counter believe, all of whose commands add 1: one history has each
// value once, and what was asked later than an answer was believed comes behind it.
class Believed final {
 public:
  void add(const Answer& answer, std::uint64_t floor) {
    for (const Bytes& output : answer.outputs) {
      const auto value = CounterMachine::value_of(output);
      ASSERT_TRUE(value);
      EXPECT_TRUE(values_.insert(*value).second) << *value << " was believed twice";
      EXPECT_GT(*value, floor) << "what was believed is lost";
    }
  }
  std::uint64_t most() const { return values_.empty() ? 0 : *values_.rbegin(); }

 private:
  std::set<std::uint64_t> values_;
};

// Clients that add, and what they believe.
class AddingClients final {
 public:
  AddingClients(Schedule& schedule, Draw& draw) : schedule_(schedule), draw_(draw) {}

  void add(PartyId id, std::unique_ptr<ScheduledClient> client) {
    client->retry_after = std::chrono::milliseconds(500);
    clients_.push_back({client.get(), {}});
    schedule_.add(id, std::move(client));
  }
  void ask() {
    Its& its = draw_.of(clients_);
    its.floors.push_back(believed_.most());
    its.client->submit(additions(1 + draw_.below(8)));
  }
  // Who told one of them what a liar_of() replies.
  std::set<PartyId> who_lied(const Directory& directory) const {
    std::set<PartyId> all;
    for (const Its& its : clients_) {
      for (const Bytes& answer : its.client->handed_in()) {
        auto content = detail::read_signed(answer, MessageType::kReply);
        if (!content || content->items.count() == 0 ||
            !detail::verify_signed(directory, answer, *content))
          continue;
        if (CounterMachine::value_of(content->items.take()).value_or(0) >= kLiedValue)
          all.insert(content->sender);
      }
    }
    return all;
  }
  void hand_in_again() {
    for (const Its& its : clients_) its.client->hand_in_again();
  }
  // Returns whether all that was asked is answered.
  bool take() {
    bool all = true;
    for (Its& its : clients_) {
      while (const auto answer = its.client->take()) {
        believed_.add(*answer, its.floors.front());
        its.floors.pop_front();
      }
      all = all && its.floors.empty();
    }
    return all;
  }

 private:
  struct Its {
    ScheduledClient* client = nullptr;
    std::deque<std::uint64_t> floors;  // of what it waits for
  };

  Schedule& schedule_;
  Draw& draw_;
  std::vector<Its> clients_;
  Believed believed_;
};

// Faults of links for some seconds: messages between nodes are late, up to 10 s, in which other
// links overtake them; connections of clients are lost, with what was under way. Meanwhile clients
// ask, and `also` happens. At the end all links are well.
inline void run_with_faults(Schedule& schedule, Draw& draw, AddingClients& clients,
                            const std::vector<PartyId>& nodes, bool faulty_links,
                            const std::function<void()>& also) {
  using namespace std::chrono_literals;
  const auto link = [&](std::vector<PartyId> from) {
    auto all = nodes;
    const PartyId one = draw.of(from);
    const PartyId other = draw.of(all);
    return draw.chance(50) ? Schedule::Link(one, other) : Schedule::Link(other, one);
  };
  for (int round = 0; round < 6; ++round) {
    if (draw.chance(70)) clients.ask();
    if (faulty_links) {
      if (draw.chance(50)) schedule.held.insert(link(nodes));
      if (draw.chance(30) && !schedule.held.empty()) schedule.held.erase(schedule.held.begin());
      if (draw.chance(30)) {
        const auto lost = link({kClient, kOtherClient});
        schedule.lose(lost);
        schedule.cut.insert(lost);
      }
      if (draw.chance(50)) schedule.cut.clear();
    }
    also();
    schedule.run(draw.chance(15) ? 10s : std::chrono::milliseconds(20 * (1 + draw.below(10))));
    clients.take();
  }
  schedule.held.clear();
  schedule.cut.clear();
}

}  // namespace leat::trusted
