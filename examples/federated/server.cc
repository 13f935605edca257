#include "server.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "sha256.h"

namespace federated {

struct Server::Update {
  unsigned client = 0;
  double weight = 0;
  double loss = 0;
  Sha256 digest;
};

namespace {

bool is_digest(const leat::Message& message, const std::string& digest) {
  try {
    const Word word = parse_word(message.bytes());
    return word.kind == Kind::kDigest && word.digest == to_digest(digest);
  } catch (const std::runtime_error&) {
    return false;
  }
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Server::Server(leat::GroupMaster& clients, Task task, Model model, unsigned min_clients,
               ServerProgress progress)
    : clients_(clients),
      task_(std::move(task)),
      model_(std::move(model)),
      min_clients_(min_clients),
      progress_(std::move(progress)),
      reported_(clients.size()) {}

Report Server::run() {
  try {
    return run_rounds();
  } catch (const std::exception& failure) {
    // The clients would only see that the connection ends.
    try {
      Word word;
      word.kind = Kind::kGaveUp;
      clients_.broadcast(bytes_of(word));
      clients_.broadcast(failure.what());
      clients_.shutdown();
    } catch (const leat::Error&) {
      // None is left, or one is in the middle of a tensor.
    }
    throw;
  }
}

Report Server::run_rounds() {
  const std::string task = to_text(task_);
  broadcast(std::as_bytes(std::span(task)));
  Report report;
  for (unsigned round = 1; round <= task_.rounds; ++round) {
    report.rounds.push_back(run_round(round));
    if (round > 1) report.rounds[round - 2].digest = to_text(sent_);
    if (progress_.round) progress_.round(report.rounds.back());
  }
  report.digest = distribute(Kind::kFinal, task_.rounds + 1);
  if (!report.rounds.empty()) report.rounds.back().digest = report.digest;
  confirm(report.digest);
  clients_.shutdown();
  return report;
}

RoundReport Server::run_round(unsigned round) {
  const leat::Stats before = clients_.stats();
  RoundReport report;
  report.round = round;
  auto start = Clock::now();
  distribute(Kind::kModel, round);
  report.distribute_seconds = seconds_since(start);
  start = Clock::now();
  std::vector<Update> updates = await_updates(round);
  report.train_seconds = seconds_since(start);
  start = Clock::now();
  while (!collect(round, updates)) {
    ++report.attempts;
    Word again;
    again.kind = Kind::kAgain;
    again.round = round;
    broadcast(bytes_of(again));
    updates = await_updates(round);
  }
  report.collect_seconds = seconds_since(start);

  report.clients = static_cast<unsigned>(updates.size());
  double samples = 0;
  for (const Update& update : updates) {
    report.loss += update.weight * update.loss;
    samples += update.weight;
  }
  report.loss /= samples;
  const leat::Stats after = clients_.stats();
  report.sent_bytes = after.sent_bytes - before.sent_bytes;
  report.received_bytes = after.received_bytes - before.received_bytes;
  report.lost = newly_lost();
  return report;
}

// The first words of the updates of all that are left.
std::vector<Server::Update> Server::await_updates(unsigned round) {
  progress_.step(round, "training", 0);
  std::vector<Update> updates;
  for (const leat::GroupMessage& answer : gather()) {
    // One that was dropped may still have something here.
    if (!answer.message || clients_.end(answer.worker) != nullptr) continue;
    try {
      const Word word = parse_word(answer.message.bytes());
      if (word.kind != Kind::kUpdate || word.round != round || word.samples == 0 ||
          word.samples > kMaxSamples)
        throw std::runtime_error("a word that was not due");
      if (word.digest != sent_) throw std::runtime_error("the digest of another model");
      updates.push_back({answer.worker, static_cast<double>(word.samples), word.loss, {}});
    } catch (const std::runtime_error& error) {
      lose(answer.worker, std::string("it sent ") + error.what());
    }
  }
  check_enough(updates.size());
  return updates;
}

// The tensors, of which each mean takes the place of the old tensor as soon as all clients' are
// there. False: not all updates came whole; those means are then worth nothing, and made again.
bool Server::collect(unsigned round, std::vector<Update>& updates) {
  std::vector<double> weights;
  weights.reserve(updates.size());
  for (const Update& update : updates) weights.push_back(update.weight);
  bool whole = true;
  std::uint64_t done = 0;
  for (std::size_t i = 0; i < model_.size(); ++i) {
    const std::span<float> tensor = model_.tensor(i);
    const std::vector<leat::GroupMessage> messages = gather();
    std::vector<const float*> values;
    for (Update& update : updates) {
      const leat::Message& message = messages[update.client].message;
      if (!message) continue;
      if (message.size() == tensor.size_bytes()) {
        update.digest.update(message.bytes());
        values.push_back(reinterpret_cast<const float*>(message.data()));
      } else {
        lose(update.client, "it sent another size of " + model_.shapes()[i].name);
      }
    }
    whole = whole && values.size() == updates.size();
    if (whole) weighted_mean(values, weights, tensor);
    done += tensor.size_bytes();
    progress_.step(round, "collecting",
                   static_cast<double>(done) / static_cast<double>(model_.bytes()));
  }
  const std::vector<leat::GroupMessage> digests = gather();
  for (Update& update : updates) {
    const leat::Message& message = digests[update.client].message;
    if (message && is_digest(message, update.digest.hex())) continue;
    whole = false;
    if (message) lose(update.client, "SHA-256 differs: its update was damaged on its way");
  }
  check_enough(clients_.alive());
  return whole;
}

// To all clients; the digest of what was sent.
std::string Server::distribute(Kind kind, unsigned round) {
  Word word;
  word.kind = kind;
  word.round = round;
  broadcast(bytes_of(word));
  Sha256 digest;
  std::uint64_t done = 0;
  for (std::size_t i = 0; i < model_.size(); ++i) {
    const std::span<const std::byte> tensor = std::as_bytes(model_.tensor(i));
    broadcast(tensor);
    digest.update(tensor);
    done += tensor.size();
    progress_.step(round, "distributing",
                   static_cast<double>(done) / static_cast<double>(model_.bytes()));
  }
  sent_ = to_digest(digest.hex());
  word.kind = Kind::kDigest;
  word.digest = sent_;
  broadcast(bytes_of(word));
  return to_text(sent_);
}

// All clients have the final model.
void Server::confirm(const std::string& digest) {
  std::size_t confirmed = 0;
  for (const leat::GroupMessage& answer : gather()) {
    if (!answer.message) continue;
    if (is_digest(answer.message, digest)) {
      ++confirmed;
    } else {
      lose(answer.worker, "it sent another digest of the final model");
    }
  }
  check_enough(confirmed);
}

void Server::broadcast(std::span<const std::byte> message) {
  try {
    clients_.broadcast(message);
    return;
  } catch (const leat::Error& error) {
    if (error.code() == leat::ErrorCode::kPeerDied) check_enough(0);
    if (error.code() != leat::ErrorCode::kTimeout) throw;
  }
  for (const unsigned client : clients_.unreached()) lose(client, "it took nothing in time");
}

// Returns one message of each client that is left, and drops the silent ones.
std::vector<leat::GroupMessage> Server::gather() {
  for (;;) {
    try {
      return clients_.gather();
    } catch (const leat::Error& error) {
      if (error.code() == leat::ErrorCode::kPeerDied) check_enough(0);
      if (error.code() != leat::ErrorCode::kTimeout) throw;
    }
    for (const unsigned client : clients_.unheard()) lose(client, "it sent nothing in time");
  }
}

void Server::check_enough(std::size_t left) const {
  if (left >= min_clients_) return;
  std::string why = std::to_string(left) + " of " + std::to_string(clients_.size()) +
                    " clients are left, and --min-clients is " + std::to_string(min_clients_);
  for (unsigned client = 0; client < clients_.size(); ++client)
    if (const leat::WorkerEnd* end = clients_.end(client)) why += "; " + end->reason;
  throw std::runtime_error(why);
}

std::vector<std::string> Server::newly_lost() {
  std::vector<std::string> lost;
  for (unsigned client = 0; client < clients_.size(); ++client) {
    const leat::WorkerEnd* const end = clients_.end(client);
    if (end == nullptr || reported_[client]) continue;
    reported_[client] = true;
    lost.push_back(end->reason);
  }
  return lost;
}

}  // namespace federated
