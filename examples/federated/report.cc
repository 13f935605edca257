#include "report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace federated {

void print_beginning(const RunDescription& run) {
  std::printf("%zu tensors, %llu parameters, %.1f MB; %u clients; %s on %s\n", run.tensors,
              static_cast<unsigned long long>(run.parameters),
              static_cast<double>(run.parameters) * sizeof(float) * 1e-6, run.clients,
              run.transport.c_str(), run.device.c_str());
  std::printf(
      "round  clients  distribute s  train s  collect s    MB sent  MB received   GB/s      "
      "loss\n");
}

void print_round(const RoundReport& round) {
  for (const std::string& client : round.lost) std::printf("lost: %s\n", client.c_str());
  std::printf("%5u  %7u  %12.3f  %7.3f  %9.3f  %9.1f  %11.1f  %5.2f  %8.5f\n", round.round,
              round.clients, round.distribute_seconds, round.train_seconds, round.collect_seconds,
              static_cast<double>(round.sent_bytes) * 1e-6,
              static_cast<double>(round.received_bytes) * 1e-6, round.goodput() * 1e-9, round.loss);
  std::fflush(stdout);
}

void print_end(const Report& report) {
  std::printf("SHA-256 of the model: %s, equal at all clients\n", report.digest.c_str());
}

void print_json(const RunDescription& run, const Report& report, const leat::Stats& stats) {
  nlohmann::ordered_json json{{"program", "federated"},
                              {"transport", run.transport},
                              {"device", run.device},
                              {"clients", run.clients},
                              {"tensors", run.tensors},
                              {"parameters", run.parameters},
                              {"model_bytes", run.parameters * sizeof(float)},
                              {"sha256", report.digest},
                              {"chunks", stats.chunks},
                              {"resumes", stats.resumes},
                              {"reassembled_messages", stats.reassembled_messages}};
  json["rounds"] = nlohmann::ordered_json::array();
  for (const RoundReport& round : report.rounds)
    json["rounds"].push_back({{"round", round.round},
                              {"clients", round.clients},
                              {"attempts", round.attempts},
                              {"lost", round.lost},
                              {"distribute_seconds", round.distribute_seconds},
                              {"train_seconds", round.train_seconds},
                              {"collect_seconds", round.collect_seconds},
                              {"seconds", round.seconds()},
                              {"sent_bytes", round.sent_bytes},
                              {"received_bytes", round.received_bytes},
                              {"goodput_bytes_per_second", round.goodput()},
                              {"loss", round.loss},
                              {"sha256", round.digest}});
  std::printf("%s\n", json.dump(2).c_str());
}

}  // namespace federated
