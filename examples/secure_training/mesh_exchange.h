// Messages of a training over leat's party mesh, each at the place that the plan gave it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "exchange.h"
#include "leat/scml/party.h"
#include "session.h"

namespace training {

// What a stage cost, over all its runs.
struct StageFigures {
  double seconds = 0;                // from begin to end
  double communication_seconds = 0;  // of these, in the mesh: copying, and waiting for the others
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t rounds = 0;  // waits for what answers, or goes with, what was sent
};

// The stage's contexts are open while it runs; words are messages, and the next one's index is the
// number of those before it. Errors: leat::Error, of the mesh.
class MeshExchange final : public Exchange {
 public:
  // Both must live longer. Every stage is a step of the plan.
  MeshExchange(leat::scml::Mesh& mesh, const leat::scml::Plan& plan);

  void begin(const Stage& stage) override;
  void end() override;
  std::span<Word> reserve(unsigned peer, std::size_t words) override;
  void commit(unsigned peer) override;
  std::span<const Word> receive(unsigned peer, std::size_t words) override;

  const std::map<std::string, StageFigures>& figures() const noexcept { return figures_; }

 private:
  using Clock = std::chrono::steady_clock;

  // One direction of talking with one peer.
  struct Flow {
    unsigned context = 0;
    std::uint64_t next = 0;
  };

  void select(unsigned context);
  void add_communication(Clock::time_point since);

  leat::scml::Mesh& mesh_;
  const leat::scml::Plan& plan_;
  std::map<std::string, const leat::scml::Step*> steps_;
  std::map<std::string, StageFigures> figures_;

  // Of the stage that runs.
  StageFigures* stage_ = nullptr;
  Clock::time_point begun_;
  std::vector<unsigned> open_;
  unsigned selected_ = 0;
  std::array<Flow, kProcesses> to_, from_;
  std::size_t reserved_words_ = 0;
  bool sent_since_receive_ = false;
};

}  // namespace training
