#include "mesh_exchange.h"

#include <algorithm>
#include <utility>

namespace training {

MeshExchange::MeshExchange(leat::scml::Mesh& mesh, const leat::scml::Plan& plan)
    : mesh_(mesh), plan_(plan) {
  for (const leat::scml::Step& step : plan.steps) steps_[step.name] = &step;
}

void MeshExchange::add_communication(Clock::time_point since) {
  stage_->communication_seconds += std::chrono::duration<double>(Clock::now() - since).count();
}

void MeshExchange::begin(const Stage& stage) {
  begun_ = Clock::now();
  stage_ = &figures_[stage.name];
  to_.fill({});
  from_.fill({});
  // Its own: stages repeat in another order than the plan has them, so none is open ahead.
  for (const std::size_t index : steps_.at(stage.name)->arrays) {
    const leat::scml::Placement& placement = plan_.placements[index];
    bool is_ours = false;
    for (const leat::scml::Flow& flow : placement.messages.flows) {
      if (flow.sender == mesh_.self()) to_[flow.receiver].context = placement.context;
      if (flow.receiver == mesh_.self()) from_[flow.sender].context = placement.context;
      is_ours = is_ours || flow.sender == mesh_.self() || flow.receiver == mesh_.self();
    }
    if (!is_ours) continue;
    mesh_.open(placement);
    open_.push_back(placement.context);
  }
  selected_ = 0;
  sent_since_receive_ = false;
  add_communication(begun_);
}

void MeshExchange::end() {
  const auto start = Clock::now();
  for (const unsigned context : open_) mesh_.close(context);
  open_.clear();
  add_communication(start);
  stage_->seconds += std::chrono::duration<double>(Clock::now() - begun_).count();
}

void MeshExchange::select(unsigned context) {
  if (std::exchange(selected_, context) != context) mesh_.select(context);
}

std::span<Word> MeshExchange::reserve(unsigned peer, std::size_t words) {
  const auto start = Clock::now();
  Flow& flow = to_.at(peer);
  select(flow.context);
  const std::span<std::byte> bytes = mesh_.reserve(peer, flow.next, words);
  reserved_words_ = words;
  add_communication(start);
  return {reinterpret_cast<Word*>(bytes.data()), words};
}

void MeshExchange::commit(unsigned peer) {
  const auto start = Clock::now();
  mesh_.commit(peer);
  to_.at(peer).next += reserved_words_;
  stage_->sent_bytes += reserved_words_ * sizeof(Word);
  sent_since_receive_ = true;
  add_communication(start);
}

std::span<const Word> MeshExchange::receive(unsigned peer, std::size_t words) {
  const auto start = Clock::now();
  Flow& flow = from_.at(peer);
  select(flow.context);
  const std::span<const std::byte> bytes = mesh_.receive(peer, flow.next, words);
  flow.next += words;
  stage_->received_bytes += bytes.size();
  if (std::exchange(sent_since_receive_, false)) ++stage_->rounds;
  add_communication(start);
  return {reinterpret_cast<const Word*>(bytes.data()), words};
}

}  // namespace training
