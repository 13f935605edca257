// Nodes of PeerReview, their witness and a client in one process.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "trusted/doubles.h"
#include "trusted/parts/quorum.h"
#include "trusted/peer_parties.h"

namespace leat::trusted {

using namespace std::chrono_literals;

// Parties on links that are first in, first out, and a clock that stands until it is moved.
class Tree final {
 public:
  explicit Tree(const PeerReviewOptions& options = tree_options(), std::size_t count = 3)
      : options_(options), directory_(parties(count + 1)), client_key_(key_of(kClient)) {
    for (PartyId id = 1; id <= count + 1; ++id) {
      keys_.push_back(key_of(id));
      kernels_.push_back(kernel_of(id, count + 1));
    }
    const auto last = static_cast<PartyId>(count + 1);
    for (PartyId id = 1; id <= count; ++id) {
      auto node = std::make_unique<PeerNode>(*kernels_[id - 1], directory_, keys_[id - 1],
                                             make_counter, options_, hook(id));
      nodes.push_back(node.get());
      parties_[id] = std::move(node);
    }
    auto its = std::make_unique<PeerWitness>(last, *kernels_.back(), directory_, make_counter,
                                             options_, hook(last));
    witness = its.get();
    parties_[last] = std::move(its);
    ClientOptions client{.self = kClient, .epoch = kSystemEpoch, .nodes = {}, .quorum = count};
    for (PartyId id = 1; id <= count; ++id) client.nodes.push_back(id);
    client.window = 16;
    quorum = std::make_unique<detail::Quorum>(directory_, client_key_, client, 1000);
  }

  void replace(PartyId id, std::unique_ptr<Participant> party) { parties_[id] = std::move(party); }
  AttestationKernel& kernel(PartyId id) { return *kernels_[id - 1]; }
  const SigningKey& key(PartyId id) const { return keys_[id - 1]; }
  const Directory& directory() const { return directory_; }
  const PeerReviewOptions& options() const { return options_; }

  void ask(std::size_t commands) { send(kClient, 1, quorum->submit(additions(commands))); }
  std::optional<std::uint64_t> answer() {
    const auto answer = quorum->take();
    return answer ? CounterMachine::value_of(answer->outputs.back()) : std::nullopt;
  }

  void send(PartyId from, PartyId to, View message) {
    if (tap) tap(from, to, message);
    if (std::ranges::find(cut, std::pair(from, to)) == cut.end())
      links_[{from, to}].emplace_back(message.begin(), message.end());
  }

  // Delivers everything in an order of chance, and moves the clock, for so long.
  void run(std::chrono::milliseconds time, std::mt19937& random) {
    for (const auto end = now + time; now < end; now += Participant::kTick) {
      for (auto& [id, party] : parties_) {
        Sender outbox(*this, id);
        party->idle(now, outbox);
      }
      deliver(random);
    }
  }

  std::vector<std::pair<PartyId, StandingChange>> changes;
  std::vector<PeerNode*> nodes;
  PeerWitness* witness = nullptr;
  std::unique_ptr<detail::Quorum> quorum;
  std::vector<std::pair<PartyId, PartyId>> cut;
  std::function<void(PartyId, PartyId, View)> tap;
  bool hands_in = true;  // the client passes on all answers to the witness
  Participant::Time now{1h};

 private:
  struct Sender final : Outbox {
    Sender(Tree& its_tree, PartyId its_from) : tree(its_tree), from(its_from) {}
    void send(PartyId to, View message) override { tree.send(from, to, message); }
    Tree& tree;
    PartyId from;
  };

  StandingHook hook(PartyId id) {
    return [this, id](const StandingChange& change) { changes.emplace_back(id, change); };
  }

  void deliver(std::mt19937& random) {
    for (;;) {
      std::vector<std::pair<PartyId, PartyId>> ready;
      for (const auto& [link, messages] : links_)
        if (!messages.empty()) ready.push_back(link);
      if (ready.empty()) {
        for (auto& [id, party] : parties_) {
          Sender outbox(*this, id);
          party->settle(now, outbox);
        }
        if (std::ranges::all_of(links_, [](const auto& link) { return link.second.empty(); }))
          return;
        continue;
      }
      const auto link = ready[random() % ready.size()];
      const Bytes message = std::move(links_[link].front());
      links_[link].pop_front();
      Sender outbox(*this, link.second);
      if (link.second == kClient) {
        if (hands_in) send(kClient, static_cast<PartyId>(parties_.size()), message);
        quorum->receive(message);
      } else if (parties_.contains(link.second)) {
        parties_[link.second]->receive(link.first, message, now, outbox);
        if (random() % 3 == 0) parties_[link.second]->settle(now, outbox);
      }
    }
  }

  const PeerReviewOptions options_;
  const Directory directory_;
  const SigningKey client_key_;
  std::vector<SigningKey> keys_;
  std::vector<std::unique_ptr<LocalKernel>> kernels_;
  std::map<PartyId, std::unique_ptr<Participant>> parties_;
  std::map<std::pair<PartyId, PartyId>, std::deque<Bytes>> links_;
};

}  // namespace leat::trusted
