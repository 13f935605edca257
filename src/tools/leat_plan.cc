// leat-plan: the messages of a secure machine learning task and where they go, before anything
// runs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/allowed.h"
#include "leat/error.h"
#include "leat/scml/planner.h"
#include "leat/version.h"
#include "tools/plan_svg.h"

namespace leat::tools {
namespace {

using nlohmann::ordered_json;

constexpr int kCannotPlan = 1;
constexpr int kUsage = 2;

constexpr const char* kFooter = R"(Examples:
  leat-plan lenet.json                               one inference by two parties
  leat-plan lenet.json --pass train --parties 3      a training step by three
  leat-plan lenet.json --pass train --svg plan.svg   ... memory over steps as an image
  leat-plan lenet.json --profile best                with leat's own protocols instead of Piranha's
  leat-plan lenet.json --batch 1 --form inner        every product a message of its own
  leat-plan lenet.json --triples ot                  with the making of Beaver triples
  leat-plan lenet.json --memory 64MiB                does it fit? If not: what is missing
  leat-plan lenet.json --json | jq .peak_bytes       for programs

Model files come with leat, in share/leat/models. Base is where in the receiver's region the messages of
a context begin; message i of n bytes goes to base + n * i. Parties whose digests agree have the same plan.

Exit code: 0; 1 if the model is wrong or the plan does not fit; 2 for wrong arguments. See leat-plan(1).)";

struct Arguments {
  std::string model_path;
  scml::ParseOptions task;
  scml::PlanOptions plan;
  std::string svg_path;
  bool json = false;
  bool time = false;
};

const char* form_text(scml::Form form) { return form == scml::Form::kMatrix ? "matrix" : "inner"; }

const char* triples_text(scml::Triples triples) {
  switch (triples) {
    case scml::Triples::kNone:
      return "none";
    case scml::Triples::kOt:
      return "ot";
    case scml::Triples::kHe:
      return "he";
  }
  return "none";
}

ordered_json gather_placement(const scml::Plan& plan, const scml::Placement& placement) {
  const scml::MessageArray& array = placement.messages;
  ordered_json flows = ordered_json::array();
  for (const scml::Flow& flow : array.flows) flows.push_back({flow.sender, flow.receiver});
  return {{"context", placement.context},
          {"content", array.content},
          {"base_bytes", placement.base_bytes},
          {"message_bytes", array.message_bytes},
          {"message_count", array.message_count()},
          {"bytes", array.bytes()},
          {"rounds", array.rounds()},
          {"round_messages", array.round_messages},
          {"flows", std::move(flows)},
          {"opened_before_step", placement.first_step},
          {"freed_after", plan.steps[placement.last_step].name},
          {"freed_after_step", placement.last_step}};
}

ordered_json gather(const scml::Plan& plan, const scml::Model& model) {
  ordered_json steps = ordered_json::array();
  for (const scml::Step& step : plan.steps) {
    ordered_json contexts = ordered_json::array();
    for (const std::size_t index : step.arrays)
      contexts.push_back(gather_placement(plan, plan.placements[index]));
    steps.push_back({{"step", steps.size()},
                     {"name", step.name},
                     {"layer", model.layers[step.layer].name},
                     {"pass", scml::to_string(step.pass)},
                     {"protocol", scml::to_string(step.protocol)},
                     {"repeats", step.repeats},
                     {"contexts", std::move(contexts)}});
  }
  const scml::Totals totals = total_of(plan);
  return {{"leat", leat::version()},
          {"model", model.name},
          {"dataset", model.dataset},
          {"parties", plan.task_options.parties},
          {"batch", plan.task_options.batch},
          {"pass", plan.task_options.train ? "train" : "infer"},
          {"form", form_text(plan.task_options.form)},
          {"triples", triples_text(plan.task_options.triples)},
          {"profile", scml::to_string(plan.task_options.profile)},
          {"free", plan.options.by_round ? "round" : "layer"},
          {"memory_bytes", plan.options.memory_bytes},
          {"offline_bytes", plan.offline_bytes},
          {"peak_bytes", plan.peak_bytes},
          {"peak_contexts", plan.peak_contexts},
          {"messages_sent", totals.messages},
          {"bytes_sent", totals.bytes},
          {"rounds", totals.rounds},
          {"digest", scml::digest_text(plan.digest)},
          {"steps", std::move(steps)}};
}

std::string headline(const scml::Plan& plan) {
  const scml::ParseOptions& task = plan.task_options;
  std::string text = (plan.model.empty() ? "model" : plan.model) + ", " +
                     std::to_string(task.parties) + " parties, batch " +
                     std::to_string(task.batch) + (task.train ? ", training" : ", inference") +
                     ", profile " + std::string(scml::to_string(task.profile));
  if (task.form == scml::Form::kInnerProducts) text += ", inner products";
  if (task.triples != scml::Triples::kNone)
    text += std::string(", triples by ") + triples_text(task.triples);
  return text;
}

std::string flows_text(const std::vector<scml::Flow>& flows) {
  std::string text;
  for (const scml::Flow& flow : flows)
    text += (text.empty() ? "" : " ") + std::to_string(flow.sender) + ">" +
            std::to_string(flow.receiver);
  return text;
}

void print_step(const scml::Plan& plan, const scml::Step& step, int name_width) {
  const std::string name =
      step.name + (step.repeats > 1 ? " (" + std::to_string(step.repeats) + " times)" : "");
  const std::string pass(scml::to_string(step.pass));
  const std::string protocol(scml::to_string(step.protocol));
  if (step.arrays.empty())
    std::printf("%-*s  %-8s  %-10s  computed locally\n", name_width, name.c_str(), pass.c_str(),
                protocol.c_str());
  for (const std::size_t index : step.arrays) {
    const scml::Placement& placement = plan.placements[index];
    const scml::MessageArray& array = placement.messages;
    const std::string& freed = plan.steps[placement.last_step].name;
    std::printf("%-*s  %-8s  %-10s  %7u  %12llu  %11llu x %-6llu  %10s  %6zu  %-*s  %s\n",
                name_width, name.c_str(), pass.c_str(), protocol.c_str(), placement.context,
                static_cast<unsigned long long>(placement.base_bytes),
                static_cast<unsigned long long>(array.message_count()),
                static_cast<unsigned long long>(array.message_bytes),
                rounded_size(array.bytes()).c_str(), array.rounds(), name_width, freed.c_str(),
                flows_text(array.flows).c_str());
  }
}

void print_table(const scml::Plan& plan) {
  std::size_t width = 9;
  for (const scml::Step& step : plan.steps)
    width = std::max(
        width, step.name.size() + (step.repeats > 1 ? std::to_string(step.repeats).size() + 9 : 0));
  const int name_width = static_cast<int>(width);
  std::printf("%s\n\n", headline(plan).c_str());
  std::printf("%-*s  %-8s  %-10s  %7s  %12s  %11s x %-6s  %10s  %6s  %-*s  %s\n", name_width,
              "layer", "pass", "protocol", "context", "base", "messages", "bytes", "size", "rounds",
              name_width, "freed after", "sent");
  for (const scml::Step& step : plan.steps) print_step(plan, step, name_width);
  const scml::Totals totals = total_of(plan);
  std::printf("\n%llu messages, %s, are sent in %llu rounds by all parties together.\n",
              static_cast<unsigned long long>(totals.messages), rounded_size(totals.bytes).c_str(),
              static_cast<unsigned long long>(totals.rounds));
  std::printf("A region of %llu bytes (%s) suffices, with %u contexts at a time.\n",
              static_cast<unsigned long long>(plan.peak_bytes),
              rounded_size(plan.peak_bytes).c_str(), plan.peak_contexts);
  std::printf("Digest: %s\n", scml::digest_text(plan.digest).c_str());
}

// The median of several runs; a plan is a pure function, so that they are all alike.
double median_plan_ms(const scml::Task& task, const scml::PlanOptions& options) {
  constexpr std::size_t kRuns = 21;
  std::vector<double> times;
  while (times.size() < kRuns) {
    const auto start = std::chrono::steady_clock::now();
    scml::make_plan(task, options);
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
            .count());
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file)
    throw Error(ErrorCode::kSystem, path + ": cannot be written",
                "Name a file in a folder that you may write to.");
}

int show(const Arguments& arguments) {
  const scml::Model model = scml::load_model(arguments.model_path);
  const scml::Task task = scml::parse(model, arguments.task);
  const scml::Plan plan = scml::make_plan(task, arguments.plan);
  if (!arguments.svg_path.empty())
    write_file(arguments.svg_path, draw_plan(plan, "Message memory: " + headline(plan)));
  const double plan_ms = arguments.time ? median_plan_ms(task, arguments.plan) : 0;
  if (arguments.json) {
    ordered_json object = gather(plan, model);
    if (arguments.time) object["plan_ms"] = plan_ms;
    std::cout << object.dump(2) << '\n';
    return 0;
  }
  print_table(plan);
  if (arguments.time)
    std::printf("Planning of %zu steps takes %.3f ms.\n", plan.steps.size(), plan_ms);
  return 0;
}

int run(int argc, char** argv) {
  CLI::App app(
      "Prints the messages that a secure machine learning task exchanges, with their memory and "
      "protocol contexts.",
      "leat-plan");
  app.footer(kFooter);
  app.set_version_flag("-v,--version", std::string("leat ") + leat::version());
  Arguments arguments;
  app.add_option("model", arguments.model_path, "Model file, JSON as docs/scml.md describes it")
      ->required()
      ->type_name("MODEL.json");
  app.add_option("--parties", arguments.task.parties,
                 "2: additive sharing; 3, 4: replicated sharing")
      ->check(CLI::Range(2, 4))
      ->capture_default_str();
  app.add_option("--batch", arguments.task.batch, "Samples at a time (default: the model's)")
      ->check(CLI::Range(std::uint64_t{1}, scml::kMaxDimension))
      ->type_name("SAMPLES");
  const std::map<std::string, bool> passes{{"infer", false}, {"train", true}};
  app.add_option("--pass", arguments.task.train,
                 "infer: forward only (default); train: with the backward pass")
      ->transform(cli::one_of(passes))
      ->type_name("infer|train");
  cli::add_choice(app, "--profile", arguments.task.profile, scml::kProfiles,
                  "The protocols: Piranha's, which CORA measures (default); SecureML's, ABY3's and "
                  "Fantastic Four's; or those of leat's example secure_training");
  const std::map<std::string, scml::Form> forms{{"matrix", scml::Form::kMatrix},
                                                {"inner", scml::Form::kInnerProducts}};
  app.add_option("--form", arguments.task.form,
                 "Multiply whole matrices (default), or each pair of numbers by itself")
      ->transform(cli::one_of(forms))
      ->type_name("matrix|inner");
  const std::map<std::string, scml::Triples> sources{
      {"none", scml::Triples::kNone}, {"ot", scml::Triples::kOt}, {"he", scml::Triples::kHe}};
  app.add_option("--triples", arguments.task.triples,
                 "How two parties make Beaver triples beforehand: not at all (default), by "
                 "oblivious transfer, or by homomorphic encryption")
      ->transform(cli::one_of(sources))
      ->type_name("none|ot|he");
  app.add_option("--memory", arguments.plan.memory_bytes,
                 "Size of the region for messages (default: 16GiB)")
      ->transform(cli::size_between(0))
      ->type_name("BYTES");
  app.add_option("--offline-memory", arguments.plan.offline_bytes,
                 "The part of it for making triples, at most (default: 64MiB)")
      ->transform(cli::size_between(0))
      ->type_name("BYTES");
  const std::map<std::string, bool> frees{{"layer", false}, {"round", true}};
  app.add_option("--free", arguments.plan.by_round,
                 "Free the memory of messages after the next layer (default), or after the next "
                 "round")
      ->transform(cli::one_of(frees))
      ->type_name("layer|round");
  app.add_option("--svg", arguments.svg_path,
                 "Draw the use of memory over the steps into this file")
      ->type_name("FILE");
  app.add_flag("--time", arguments.time, "Say how long planning takes (median of 21)");
  app.add_flag("--json", arguments.json, "Print one JSON object");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  return show(arguments);
}

}  // namespace
}  // namespace leat::tools

int main(int argc, char** argv) {
  try {
    return leat::tools::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "leat-plan: %s\n", error.what());
    return leat::tools::kCannotPlan;
  }
}
