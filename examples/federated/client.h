// One that trains on data of its own, and tells nobody but the result.
#pragma once

#include <leat/group.h>

#include <cstdint>
#include <functional>
#include <string>

#include "model.h"
#include "words.h"

namespace federated {

struct ClientReport {
  unsigned rounds = 0;
  unsigned sent_again = 0;
  std::string digest;  // of the final model
};

// Reports progress: the round, the step, and how much of it is done.
using ClientProgress = std::function<void(unsigned round, const char* what, double fraction)>;

class Client {
 public:
  // Takes the task. Throws std::runtime_error if that is nonsense, leat::Error. `samples`: its
  // weight in the mean.
  Client(leat::GroupWorker& server, std::uint64_t samples, ClientProgress progress);

  // All rounds. Throws std::runtime_error if the server gave up, with its reason, or if a digest
  // differs.
  ClientReport run();

 private:
  void send(std::span<const std::byte> message);
  Word receive_word();
  leat::Message receive();
  void receive_model(unsigned round);
  void send_update(unsigned round, double loss);

  leat::GroupWorker& server_;
  const std::uint64_t samples_;
  const ClientProgress progress_;
  const Task task_;
  Model model_;
  Digest received_{};  // of the model that came last
};

}  // namespace federated
