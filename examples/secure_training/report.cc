#include "report.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

namespace training {
namespace {

struct Row {
  Stage stage;
  StageFigures figures;

  double compute_seconds() const { return figures.seconds - figures.communication_seconds; }
};

// The training's stages, in their order; process 2 has none with two parties.
std::vector<Row> training_rows(const RunDescription& run, const Report& report) {
  std::vector<Row> rows;
  for (const Stage& stage : stages(run.settings.network)) {
    const auto found = report.stages.find(stage.name);
    if (found != report.stages.end()) rows.push_back({stage, found->second});
  }
  return rows;
}

// What is done between stages, such as choosing samples, is computing.
Row total_of(const std::vector<Row>& rows, const Report& report) {
  Row total{{"total"}, {}};
  for (const Row& row : rows) {
    total.figures.communication_seconds += row.figures.communication_seconds;
    total.figures.sent_bytes += row.figures.sent_bytes;
    total.figures.received_bytes += row.figures.received_bytes;
    total.figures.rounds += row.figures.rounds;
  }
  total.figures.seconds = report.online_seconds;
  return total;
}

void print_row(const Row& row) {
  std::printf("%-16s %9.1f %14.1f %10.2f %12.2f %9llu\n", row.stage.name.c_str(),
              row.compute_seconds() * 1e3, row.figures.communication_seconds * 1e3,
              static_cast<double>(row.figures.sent_bytes) * 1e-6,
              static_cast<double>(row.figures.received_bytes) * 1e-6,
              static_cast<unsigned long long>(row.figures.rounds));
}

nlohmann::ordered_json to_json(const Row& row) {
  return {{"stage", row.stage.name},
          {"pass", leat::scml::to_string(row.stage.pass)},
          {"compute_seconds", row.compute_seconds()},
          {"communication_seconds", row.figures.communication_seconds},
          {"sent_bytes", row.figures.sent_bytes},
          {"received_bytes", row.figures.received_bytes},
          {"rounds", row.figures.rounds}};
}

std::string widths_text(const Network& network) {
  std::string text;
  for (const std::size_t width : network.widths)
    text += (text.empty() ? "" : "-") + std::to_string(width);
  return text;
}

}  // namespace

void print_table(const RunDescription& run, const Report& report) {
  const Settings& settings = run.settings;
  std::printf("%s network, %u parties, transport %s: %zu epochs of %zu steps of %zu samples\n",
              widths_text(settings.network).c_str(), settings.parties, run.transport.c_str(),
              settings.epochs, steps_per_epoch(settings), settings.network.batch);
  const std::vector<Row> rows = training_rows(run, report);
  if (!rows.empty()) {
    std::printf(
        "\nProcess %u, online   ms compute  ms communicate    MB sent  MB received    rounds\n",
        run.self);
    for (const Row& row : rows) print_row(row);
    print_row(total_of(rows, report));
  }
  std::printf("\noffline (dealing) %.3f s, online (training) %.3f s\n", report.offline_seconds,
              report.online_seconds);
  std::printf("accuracy: trained on shares %.2f %%, on plain fixed-point numbers %.2f %%\n",
              report.outcome.accuracy * 100, report.outcome.plain_accuracy * 100);
  std::printf("SHA-256 of the weights: %s\n", report.outcome.weights_sha256.c_str());
  if (run.reproducible)
    std::printf("With --seed every process can know every secret: for comparing runs only.\n");
}

void print_json(const RunDescription& run, const Report& report) {
  const std::vector<Row> rows = training_rows(run, report);
  const Row total = total_of(rows, report);
  nlohmann::ordered_json json{{"program", "secure_training"},
                              {"parties", run.settings.parties},
                              {"process", run.self},
                              {"transport", run.transport},
                              {"widths", run.settings.network.widths},
                              {"batch", run.settings.network.batch},
                              {"epochs", run.settings.epochs},
                              {"offline_seconds", report.offline_seconds},
                              {"online_seconds", report.online_seconds},
                              {"compute_seconds", total.compute_seconds()},
                              {"communication_seconds", total.figures.communication_seconds},
                              {"accuracy", report.outcome.accuracy},
                              {"plain_accuracy", report.outcome.plain_accuracy},
                              {"weights_sha256", report.outcome.weights_sha256}};
  json["stages"] = nlohmann::ordered_json::array();
  for (const Row& row : rows) json["stages"].push_back(to_json(row));
  std::printf("%s\n", json.dump(2).c_str());
}

}  // namespace training
