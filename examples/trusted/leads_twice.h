// A leader that lies by telling two histories.
#pragma once

#include <leat/trusted/participant.h>
#include <leat/trusted/state_machine.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

// Runs two replicas in its own name. One deals with the parties that have even numbers, the other
// with those that have odd ones, and neither knows of what the other does. With an attestation
// kernel for each, followers and clients of the two halves believe different histories. If both
// must use one kernel, the leader's records have one order, and one history is all there is.
//
// Both begin at one time, with the requests that have come until then: followers tell each other
// what they have executed, so that of two histories they would else have heard the earlier one.
class LeadsTwice final : public leat::trusted::Participant {
 public:
  using PartyId = leat::trusted::PartyId;
  using Outbox = leat::trusted::Outbox;
  using Message = std::span<const std::byte>;
  using Replica = std::unique_ptr<leat::trusted::Participant>;

  LeadsTwice(Replica for_even, Replica for_odd)
      : replicas_{std::move(for_even), std::move(for_odd)} {}

  void receive(PartyId from, Message message, Time now, Outbox& outbox) override {
    const PartyId client = client_of(message);
    if (client == 0) return pass_on(from % 2, from, message, now, outbox);
    if (!begins_at_) begins_at_ = now + kGathering;
    // Of the client's half, also if a follower of the other one passes it on.
    requests_.emplace_back(from, leat::trusted::Bytes(message.begin(), message.end()));
  }
  void settle(Time now, Outbox& outbox) override {
    begin(now, outbox);
    for (unsigned half = 0; half < 2; ++half) {
      Half own(outbox, half);
      replicas_[half]->settle(now, own);
    }
  }
  void idle(Time now, Outbox& outbox) override {
    begin(now, outbox);
    for (unsigned half = 0; half < 2; ++half) {
      Half own(outbox, half);
      replicas_[half]->idle(now, own);
    }
  }

 private:
  // Keeps what one of them sends from the other half.
  class Half final : public Outbox {
   public:
    Half(Outbox& outbox, unsigned half) : outbox_(outbox), half_(half) {}
    void send(PartyId to, Message message) override {
      if (to % 2 == half_) outbox_.send(to, message);
    }

   private:
    Outbox& outbox_;
    const unsigned half_;
  };

  // The client that signed a request (docs/trusted_systems.md, Messages); 0 for any other
  // message.
  static PartyId client_of(Message message) {
    constexpr std::size_t kSender = 4;
    if (message.size() < kSender + sizeof(PartyId) || message[0] != std::byte{2}) return 0;
    PartyId sender = 0;
    for (std::size_t i = 0; i < sizeof sender; ++i)
      sender |= std::to_integer<PartyId>(message[kSender + i]) << 8 * i;
    return sender;
  }

  void begin(Time now, Outbox& outbox) {
    if (!begins_at_ || now < *begins_at_) return;
    for (const auto& [from, request] : std::exchange(requests_, {}))
      pass_on(client_of(request) % 2, from, request, now, outbox);
  }
  void pass_on(unsigned half, PartyId from, Message message, Time now, Outbox& outbox) {
    Half own(outbox, half);
    replicas_[half]->receive(from, message, now, own);
  }

  static constexpr std::chrono::milliseconds kGathering{300};

  const std::array<Replica, 2> replicas_;
  std::optional<Time> begins_at_;
  std::vector<std::pair<PartyId, leat::trusted::Bytes>> requests_;  // that wait, and their senders
};
