// leat-bench scml: the communication of secure machine learning, over every carrier of a mesh.
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "arguments.h"
#include "cli/allowed.h"
#include "leat/scml/model.h"
#include "machine.h"
#include "scml/replay.h"
#include "steps_bar.h"
#include "subcommand.h"

namespace leat::bench {
namespace {

using nlohmann::ordered_json;
using scml::Carrier;

constexpr Carrier kCarriers[] = {Carrier::kTcp, Carrier::kUnified, Carrier::kContexts,
                                 Carrier::kPlanned};
constexpr const char* kShippedModels[] = {"secureml", "lenet", "alexnet", "vgg16"};
// A run goes on for about so many bytes, in between one batch and many.
constexpr std::uint64_t kRunBytes = std::uint64_t{2} << 30;
constexpr std::uint64_t kMostBatches = 50;
// What is kept free of the machine's memory.
constexpr double kMemoryShare = 0.8;

struct ScmlArguments {
  std::string model = "lenet";
  scml::ParseOptions task{.batch = 128};
  scml::PlanOptions plan;
  std::uint64_t repetitions = 3;
  std::uint64_t batches = 0;  // 0: by size
  std::string device;
  std::string spin_us;
  bool verify = false;
  bool json = false;
};

// A file, or the name of a model that comes with leat.
std::string find_model(const std::string& name) {
  namespace fs = std::filesystem;
  if (fs::exists(name)) return name;
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path();
  // Installed, or where it was built.
  for (const char* folder : {"../share/leat/models", "../../../examples/models"}) {
    const fs::path path = program / folder / (name + ".json");
    if (fs::exists(path)) return path.string();
  }
  throw std::runtime_error("there is no model '" + name +
                           "'. Name a file, or secureml, lenet, alexnet, vgg16 or all.");
}

// Every pair of parties has memory for messages in both directions.
void check_memory(const scml::Plan& plan) {
  const std::uint64_t parties = plan.task_options.parties;
  const std::uint64_t needed = parties * (parties - 1) * plan.peak_bytes;
  struct sysinfo info {};
  sysinfo(&info);
  const double have = kMemoryShare * static_cast<double>(info.totalram) * info.mem_unit;
  if (static_cast<double>(needed) > have)
    throw std::runtime_error(plan.model + " needs " + std::to_string(needed >> 20) +
                             " MiB for all parties, which this machine does not have to spare. "
                             "Give a smaller --batch.");
}

// Of the batches of one carrier. Batches that something else disturbed say nothing about it, so
// what counts is what a tenth of them kept to; on a quiet machine the median is close to that.
struct Times {
  double fast_ms = 0;
  double median_ms = 0;
};

Times times_of(std::vector<double> batches) {
  if (batches.empty()) throw std::runtime_error("a party measured nothing");
  std::ranges::sort(batches);
  return {batches[batches.size() / 10], batches[batches.size() / 2]};
}

class ScmlReport {
 public:
  explicit ScmlReport(const ScmlArguments& arguments, const std::string& cores)
      : arguments_(arguments), cores_(cores) {}

  void add(const std::string& name, const scml::Plan& plan, const scml::Totals& totals,
           std::uint64_t batches, const std::map<Carrier, Times>& times) {
    const auto ms = [&](Carrier carrier) { return times.at(carrier).fast_ms; };
    const double planned = ms(Carrier::kPlanned);
    ordered_json row{{"model", name},
                     {"parties", plan.task_options.parties},
                     {"batch", plan.task_options.batch},
                     {"pass", plan.task_options.train ? "train" : "infer"},
                     {"profile", scml::to_string(plan.task_options.profile)},
                     {"free", plan.options.by_round ? "round" : "layer"},
                     {"bytes_sent", totals.bytes},
                     {"rounds", totals.rounds},
                     {"batches", batches * arguments_.repetitions}};
    for (const Carrier carrier : kCarriers) {
      const std::string carrier_name(to_string(carrier));
      row[carrier_name + "_ms"] = ms(carrier);
      row[carrier_name + "_median_ms"] = times.at(carrier).median_ms;
    }
    results_.push_back(std::move(row));
    for (const Carrier carrier : kCarriers)
      if (carrier != Carrier::kPlanned)
        ratios_["planned_vs_" + std::string(to_string(carrier)) + "_" + name] =
            planned / ms(carrier);
    if (arguments_.json) return;
    if (results_.size() == 1) print_header();
    std::printf(
        " %-10s %-7u %-6llu %-6s %-10.1f %-7llu %-12.3f %-12.3f %-13.3f %-12.3f %-12.2f %.2f\n",
        name.c_str(), plan.task_options.parties,
        static_cast<unsigned long long>(plan.task_options.batch),
        plan.task_options.train ? "train" : "infer", static_cast<double>(totals.bytes) / (1 << 20),
        static_cast<unsigned long long>(totals.rounds), ms(Carrier::kTcp), ms(Carrier::kUnified),
        ms(Carrier::kContexts), planned, ms(Carrier::kTcp) / planned,
        ms(Carrier::kUnified) / planned);
    std::fflush(stdout);
  }

  void finish() const {
    if (!arguments_.json) {
      std::printf("%s", kRule);
      return;
    }
    const Machine machine = this_machine();
    const ordered_json object{
        {"bench", "scml"},
        {"device", arguments_.device.empty() ? "auto" : arguments_.device},
        {"host", {{"cpu", machine.cpu}, {"cores", machine.cores}, {"kernel", machine.kernel}}},
        {"results", results_},
        {"ratios", ratios_}};
    std::cout << object.dump(2) << '\n';
  }

 private:
  static constexpr const char* kRule =
      "-----------------------------------------------------------------------------------------"
      "-----------------------------\n";

  void print_header() const {
    std::printf("%s                    Communication of Secure Machine Learning, per Batch\n",
                kRule);
    std::printf(" %-15s : %s\n", "Cores", cores_.c_str());
    std::printf(" %-15s : %s\n", "Profile", to_string(arguments_.task.profile).data());
    std::printf(" %-15s : %s\n", "Verified", arguments_.verify ? "every byte" : "no");
    std::printf(" %-15s : %llu, carriers in turn; times that a tenth of the batches kept to\n",
                "Repetitions", static_cast<unsigned long long>(arguments_.repetitions));
    std::printf(
        "%s #model     parties batch  pass   sent[MiB]  rounds  tcp[msec]    unified[msec] "
        "contexts[msec] planned[msec] tcp/planned unified/planned\n",
        kRule);
  }

  const ScmlArguments& arguments_;
  const std::string cores_;
  ordered_json results_ = ordered_json::array();
  ordered_json ratios_ = ordered_json::object();
};

Options options_for(const ScmlArguments& arguments, Carrier carrier, bool crowded) {
  Options options;
  if (carrier == Carrier::kTcp) {
    options.device = "tcp";
  } else if (!arguments.device.empty()) {
    options.device = arguments.device;
  }
  options.fallback = "never";
  if (!arguments.spin_us.empty()) {
    options.spin = parse_spin(arguments.spin_us);
  } else if (!crowded) {
    options.spin = std::chrono::microseconds(-1);
  }
  return options;
}

void run(const ScmlArguments& arguments) {
  std::vector<std::string> names{arguments.model};
  if (arguments.model == "all") names.assign(std::begin(kShippedModels), std::end(kShippedModels));
  // With a core for each party they spin and stay there; else they sleep where they wait.
  const bool crowded = arguments.task.parties > usable_cores();
  const auto pair = choose_cores({});
  std::vector<int> cpus;
  if (arguments.task.parties == 2 && pair) cpus.assign(pair->begin(), pair->end());
  ScmlReport report(arguments, cpus.empty() ? "not pinned" : describe_cores(pair));
  StepsBar bar("scml", names.size() * arguments.repetitions * std::size(kCarriers));

  for (const std::string& name : names) {
    const scml::Model model = scml::load_model(find_model(name));
    const scml::Plan plan = scml::make_plan(scml::parse(model, arguments.task), arguments.plan);
    check_memory(plan);
    const scml::Totals totals = total_of(plan);
    const std::uint64_t batches =
        arguments.batches != 0
            ? arguments.batches
            : std::clamp<std::uint64_t>(kRunBytes / std::max<std::uint64_t>(1, totals.bytes), 1,
                                        kMostBatches);
    std::map<Carrier, std::vector<double>> times;
    for (std::uint64_t repetition = 0; repetition < arguments.repetitions; ++repetition) {
      for (const Carrier carrier : kCarriers) {
        bar.update(0);
        const auto more = replay(plan, {.carrier = carrier,
                                        .options = options_for(arguments, carrier, crowded),
                                        .cpus = cpus,
                                        .batches = batches,
                                        .verify = arguments.verify});
        times[carrier].insert(times[carrier].end(), more.begin(), more.end());
        bar.step_done();
      }
    }
    std::map<Carrier, Times> results;
    for (auto& [carrier, values] : times) results[carrier] = times_of(std::move(values));
    report.add(std::filesystem::path(name).stem().string(), plan, totals, batches, results);
  }
  report.finish();
}

}  // namespace

Run declare_scml(CLI::App& command) {
  const auto arguments = std::make_shared<ScmlArguments>();
  command
      .add_option(
          "--model", arguments->model,
          "A model file, or one of leat's own models: secureml, lenet, alexnet, vgg16, or all")
      ->capture_default_str()
      ->type_name("MODEL");
  command
      .add_option("--parties", arguments->task.parties,
                  "2: additive sharing; 3, 4: replicated sharing. Each is a process")
      ->check(CLI::Range(2, 4))
      ->capture_default_str();
  command.add_option("--batch", arguments->task.batch, "Samples at a time")
      ->check(CLI::Range(std::uint64_t{1}, scml::kMaxDimension))
      ->capture_default_str()
      ->type_name("SAMPLES");
  const std::map<std::string, bool> passes{{"infer", false}, {"train", true}};
  command
      .add_option("--pass", arguments->task.train,
                  "infer: forward only (default); train: with the backward pass")
      ->transform(cli::one_of(passes))
      ->type_name("infer|train");
  cli::add_choice(command, "--profile", arguments->task.profile, scml::kProfiles,
                  "The protocols: Piranha's, which CORA measures (default); SecureML's, ABY3's and "
                  "Fantastic Four's; or those of leat's example secure_training");
  const std::map<std::string, bool> frees{{"layer", false}, {"round", true}};
  command
      .add_option("--free", arguments->plan.by_round,
                  "Free the memory of messages after the next layer (default), or after the next "
                  "round")
      ->transform(cli::one_of(frees))
      ->type_name("layer|round");
  command
      .add_option("-r,--repetitions", arguments->repetitions,
                  "Runs of each carrier; the carriers take turns")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->type_name("N");
  command
      .add_option(
          "-n,--iters", arguments->batches,
          "Batches of a run, after one that is not counted (default: depends on their size)")
      ->check(CLI::Range(0, 1'000'000).description(""))
      ->type_name("N");
  command
      .add_option("-d,--device", arguments->device,
                  "For the carriers on RDMA: shm, ib or ib:NAME (default: shm on one host)")
      ->type_name("NAME");
  add_spin_argument(command, arguments->spin_us);
  command.add_flag("--verify", arguments->verify, "Check every byte that arrives");
  add_json_argument(command, arguments->json);
  return [arguments] { run(*arguments); };
}

}  // namespace leat::bench
