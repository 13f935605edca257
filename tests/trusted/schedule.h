// Parties of a trusted system in this process, for tests in which time and the order of arrival
// matter: links that can be held and cut, and a clock that stands until a test moves it.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trusted/parties.h"
#include "trusted/parts/configuration_messages.h"
#include "trusted/parts/quorum.h"

namespace leat::trusted {

// Links are first in, first out; which link is next is a matter of chance.
class Schedule final {
 public:
  using Link = std::pair<PartyId, PartyId>;  // from, to

  explicit Schedule(unsigned seed) : random_(seed) {}

  void add(PartyId id, std::unique_ptr<Participant> party) { parties_[id] = std::move(party); }
  // It is gone, with all that was under way to it.
  void kill(PartyId id) {
    parties_.erase(id);
    std::erase_if(links_, [id](const auto& link) { return link.first.second == id; });
  }

  // A connection that breaks takes with it what was under way.
  void lose(const Link& link) { links_.erase(link); }

  void send(PartyId from, PartyId to, detail::View message) {
    if (cut.contains({from, to}) || !parties_.contains(to)) return;
    links_[{from, to}].emplace_back(message.begin(), message.end());
  }
  void run(std::chrono::milliseconds time) {
    for (const auto end = now + time; now < end; now += Participant::kTick) {
      for (auto& [id, party] : parties_) {
        Sender outbox(*this, id);
        party->idle(now, outbox);
      }
      deliver();
    }
  }
  // Until that holds, or for that time. Returns whether it holds.
  template <typename Condition>
  bool run_until(Condition&& condition, std::chrono::milliseconds most = std::chrono::minutes(1)) {
    for (const auto end = now + most; now < end && !condition(); run(Participant::kTick)) {
    }
    return condition();
  }

  std::set<Link> held;  // messages wait
  std::set<Link> cut;   // messages are lost
  Participant::Time now{std::chrono::hours(1)};

 private:
  struct Sender final : Outbox {
    Sender(Schedule& its_schedule, PartyId its_from) : schedule(its_schedule), from(its_from) {}
    void send(PartyId to, std::span<const std::byte> message) override {
      schedule.send(from, to, message);
    }
    Schedule& schedule;
    PartyId from;
  };

  std::vector<Link> ready() const {
    std::vector<Link> ready;
    for (const auto& [link, messages] : links_)
      if (!messages.empty() && !held.contains(link)) ready.push_back(link);
    return ready;
  }
  void deliver() {
    for (;;) {
      const auto links = ready();
      if (links.empty()) {
        for (auto& [id, party] : parties_) {
          Sender outbox(*this, id);
          party->settle(now, outbox);
        }
        if (ready().empty()) return;
        continue;
      }
      const Link link = links[random_() % links.size()];
      const Bytes message = std::move(links_[link].front());
      links_[link].pop_front();
      Sender outbox(*this, link.second);
      Participant& party = *parties_.at(link.second);
      party.receive(link.first, message, now, outbox);
      if (random_() % 3 == 0) party.settle(now, outbox);
    }
  }

  std::mt19937 random_;
  std::map<PartyId, std::unique_ptr<Participant>> parties_;
  std::map<Link, std::deque<Bytes>> links_;
};

// What the client library does, without connections: asks all nodes again, takes up what the
// configuration service says, and complains to it.
class ScheduledClient final : public Participant {
 public:
  // Without a service `nodes` answer, `quorum` of them alike.
  ScheduledClient(PartyId self, const Directory& directory, std::vector<PartyId> nodes,
                  std::size_t quorum, std::uint64_t epoch, PartyId service = 0)
      : service_(service),
        directory_(directory),
        key_(key_of(self)),
        quorum_(directory, key_,
                {.self = self,
                 .epoch = epoch,
                 .nodes = service == 0 ? std::move(nodes) : std::vector<PartyId>{service},
                 .quorum = service == 0 ? quorum : 1},
                1000) {}

  void submit(const std::vector<Bytes>& commands) { asked_.push_back(commands); }
  // The believed answer to the oldest request.
  std::optional<Answer> take() { return quorum_.take(); }
  std::uint64_t epoch() const { return quorum_.epoch(); }
  std::chrono::milliseconds retry_after{100};
  // To whom it hands in what it was answered; 0: nobody.
  PartyId witness = 0;
  // All of it once more, for what was lost on the way.
  void hand_in_again() { hands_in_again_ = true; }
  const std::vector<Bytes>& handed_in() const { return handed_in_; }

  void receive(PartyId, std::span<const std::byte> message, Time, Outbox& outbox) override {
    if (!detail::configuration_message(message)) {
      if (witness != 0 && detail::type_of(message) == detail::MessageType::kReply) {
        handed_in_.emplace_back(message.begin(), message.end());
        outbox.send(witness, message);
      }
      quorum_.receive(message);
      return;
    }
    const auto said = detail::read_configuration(message);
    if (!said || said->configuration.epoch <= quorum_.epoch() ||
        !detail::verify_configuration(directory_, service_, *said))
      return;
    quorum_.reconfigure(said->configuration.epoch, said->configuration.nodes);
    send_all(outbox);
  }
  void idle(Time now, Outbox& outbox) override {
    const bool has_nodes = service_ == 0 || quorum_.epoch() > 0;
    for (; has_nodes && !asked_.empty(); asked_.pop_front()) {
      quorum_.submit(asked_.front());
      send_all(quorum_.nodes().front(), outbox);
    }
    if (now < next_) return;
    next_ = now + retry_after;
    send_all(outbox);
    if (std::exchange(hands_in_again_, false))
      for (const Bytes& answer : handed_in_) outbox.send(witness, answer);
    if (service_ == 0) return;
    outbox.send(service_,
                detail::write_epoch(detail::ConfigurationMessage::kJoin, quorum_.epoch()));
    if (const Bytes complaint = quorum_.complaint(); !complaint.empty())
      outbox.send(service_, complaint);
  }

 private:
  void send_all(Outbox& outbox) const {
    for (const PartyId node : quorum_.nodes()) send_all(node, outbox);
  }
  // In order: a node that gets a later request first takes the earlier one for a repeated one. The
  // library sends all on each new connection; here each may be one.
  void send_all(PartyId node, Outbox& outbox) const {
    for (const detail::View request : quorum_.unanswered()) outbox.send(node, request);
  }

  const PartyId service_;
  const Directory& directory_;
  const SigningKey key_;
  detail::Quorum quorum_;
  std::deque<std::vector<Bytes>> asked_;
  std::vector<Bytes> handed_in_;
  bool hands_in_again_ = false;
  Time next_{};
};

}  // namespace leat::trusted
