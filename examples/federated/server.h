// Federated averaging: the server sends its clients the model, takes from each what that made of
// it, and goes on with the mean.
#pragma once

#include <leat/group.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model.h"
#include "words.h"

namespace federated {

struct RoundReport {
  unsigned round = 0;
  unsigned clients = 0;   // whose updates are in the mean
  unsigned attempts = 1;  // to collect the updates
  double distribute_seconds = 0;
  double train_seconds = 0;  // the slowest client's
  double collect_seconds = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  double loss = 0;                // of the model before, the weighted mean over the clients
  std::string digest;             // of the model after
  std::vector<std::string> lost;  // clients, and why

  double seconds() const { return distribute_seconds + train_seconds + collect_seconds; }
  // Bytes a second while the model or updates are on their way.
  double goodput() const {
    return static_cast<double>(sent_bytes + received_bytes) /
           (distribute_seconds + collect_seconds);
  }
};

struct Report {
  std::vector<RoundReport> rounds;
  std::string digest;  // of the final model, equal at all clients
};

struct ServerProgress {
  std::function<void(unsigned round, const char* what, double fraction)> step;
  std::function<void(const RoundReport&)> round;  // has ended
};

class Server {
 public:
  // `model` is where the training starts, and has task.shapes. Fewer clients than `min_clients` are
  // an error.
  Server(leat::GroupMaster& clients, Task task, Model model, unsigned min_clients,
         ServerProgress progress);

  // All rounds. A client that dies, is silent beyond the option `timeout`, or says nonsense is left
  // out from then on, and nothing of its unfinished update gets into the mean. Throws
  // std::runtime_error, and tells the clients why, once too few are left.
  Report run();
  const Model& model() const { return model_; }

 private:
  using Clock = std::chrono::steady_clock;
  // An update that is coming in.
  struct Update;

  Report run_rounds();
  RoundReport run_round(unsigned round);
  std::vector<Update> await_updates(unsigned round);
  bool collect(unsigned round, std::vector<Update>& updates);
  std::string distribute(Kind kind, unsigned round);
  void confirm(const std::string& digest);

  void broadcast(std::span<const std::byte> message);
  std::vector<leat::GroupMessage> gather();
  void lose(unsigned client, const std::string& reason) { clients_.drop(client, reason); }
  void check_enough(std::size_t left) const;
  std::vector<std::string> newly_lost();

  leat::GroupMaster& clients_;
  const Task task_;
  Model model_;
  const unsigned min_clients_;
  const ServerProgress progress_;
  Digest sent_{};               // of the model that was sent last
  std::vector<bool> reported_;  // that this client is lost
};

}  // namespace federated
