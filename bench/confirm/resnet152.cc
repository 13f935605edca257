// leat-bench resnet152: the parameters of a training iteration, over batched, with bundles and
// without, confirm-each and tcp.
#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "arguments.h"
#include "cli/allowed.h"
#include "confirm/report.h"
#include "confirm/resnet152_model.h"
#include "confirm/star.h"
#include "confirm/ways.h"
#include "machine.h"
#include "measure.h"
#include "plots.h"
#include "steps_bar.h"
#include "subcommand.h"

namespace leat::bench {
namespace {

using nlohmann::ordered_json;

constexpr Way kCarriers[] = {{"confirm-each"}, {"batched", true}, {"batched", false}, {"tcp"}};
constexpr std::size_t kCarrierCount = std::size(kCarriers);

struct ResnetArguments {
  unsigned workers = 4;
  std::uint64_t iterations = 7;
  bool list = false;
  bool quick = false;
  std::string device;
  std::vector<int> cpus;
  bool json = false;
  std::string plots;
};

// Parameters from one process to another; or gradients from all workers to the parameter server and
// then parameters from it to all of them.
struct Arrangement {
  const char* name;
  const char* ratio_prefix;
  const char* caption;
};
constexpr Arrangement kOneToOne{"one-to-one", "", "one process to another"};
constexpr Arrangement kServer{"parameter-server", "parameter_server_",
                              "workers to the parameter server and back"};

std::string shape_text(const Block& block) {
  std::string text;
  for (const std::uint64_t extent : block.shape)
    text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return text;
}

// What the blocks are, as JSON and in print.
class BlockList {
 public:
  explicit BlockList(std::vector<Block> blocks) : blocks_(std::move(blocks)) {
    for (const Block& block : blocks_) parameters_ += block.parameters();
  }

  std::vector<std::size_t> sizes() const {
    std::vector<std::size_t> sizes;
    sizes.reserve(blocks_.size());
    for (const Block& block : blocks_) sizes.push_back(block.bytes());
    return sizes;
  }
  std::uint64_t bytes() const { return parameters_ * sizeof(float); }
  std::size_t count() const { return blocks_.size(); }

  ordered_json summary() const {
    ordered_json classes = ordered_json::array();
    for (const SizeClass& one : size_classes(blocks_))
      classes.push_back(
          {{"up_to_bytes", one.up_to_bytes}, {"blocks", one.blocks}, {"bytes", one.bytes}});
    return {{"blocks", blocks_.size()},
            {"parameters", parameters_},
            {"bytes", bytes()},
            {"p10_bytes", size_at_rank(blocks_, 0.1)},
            {"p50_bytes", size_at_rank(blocks_, 0.5)},
            {"p90_bytes", size_at_rank(blocks_, 0.9)},
            {"p99_bytes", size_at_rank(blocks_, 0.99)},
            {"max_bytes", size_at_rank(blocks_, 1)},
            {"size_classes", classes}};
  }
  ordered_json list() const {
    ordered_json list = ordered_json::array();
    for (const Block& block : blocks_)
      list.push_back({{"name", block.name},
                      {"shape", block.shape},
                      {"parameters", block.parameters()},
                      {"bytes", block.bytes()}});
    return list;
  }

  void print_list() const {
    std::printf(" %-28s %-20s %12s %12s\n", "#block", "shape", "parameters", "bytes");
    for (const Block& block : blocks_)
      std::printf(" %-28s %-20s %12llu %12zu\n", block.name.c_str(), shape_text(block).c_str(),
                  static_cast<unsigned long long>(block.parameters()), block.bytes());
  }
  void print_summary() const {
    std::printf(
        " %zu blocks, %llu parameters, %.1f MB. Bytes of a block: 10%% up to %zu, half up to "
        "%zu,\n 90%% up to %zu, 99%% up to %zu, the largest %zu\n",
        blocks_.size(), static_cast<unsigned long long>(parameters_),
        static_cast<double>(bytes()) * 1e-6, size_at_rank(blocks_, 0.1), size_at_rank(blocks_, 0.5),
        size_at_rank(blocks_, 0.9), size_at_rank(blocks_, 0.99), size_at_rank(blocks_, 1));
    std::printf(" %12s %8s %14s\n", "up to", "blocks", "bytes in all");
    for (const SizeClass& one : size_classes(blocks_)) {
      constexpr std::uint64_t kBlocksOfABar = 4;
      std::printf(" %12s %8llu %14llu %s\n", cli::size_text(one.up_to_bytes).c_str(),
                  static_cast<unsigned long long>(one.blocks),
                  static_cast<unsigned long long>(one.bytes),
                  std::string((one.blocks + kBlocksOfABar - 1) / kBlocksOfABar, '#').c_str());
    }
  }

  Chart chart() const {
    Chart chart{Chart::Kind::kBars,
                "resnet152-blocks",
                "Parameter tensors of ResNet-152",
                "bytes, up to",
                "blocks",
                {},
                {}};
    Curve blocks{"blocks", {}};
    for (const SizeClass& one : size_classes(blocks_)) {
      chart.ticks.emplace_back(cli::size_text(one.up_to_bytes), 0);
      blocks.values.push_back(static_cast<double>(one.blocks));
    }
    chart.curves.push_back(std::move(blocks));
    return chart;
  }

 private:
  std::vector<Block> blocks_;
  std::uint64_t parameters_ = 0;
};

// Of one carrier in one arrangement.
struct FlowTimes {
  std::vector<double> ms;
  double median_ms = 0;
  double least_ms = 0;
};

class ResnetReport {
 public:
  ResnetReport(const ResnetArguments& arguments, const BlockList& blocks)
      : arguments_(arguments), blocks_(blocks) {
    if (arguments.json) return;
    std::printf("%s                    ResNet-152, the parameters of one iteration\n", kRule);
    blocks_.print_summary();
  }

  void add(const Arrangement& arrangement, const std::string& device, const std::string& conditions,
           std::uint64_t bytes, const std::array<FlowTimes, kCarrierCount>& times) {
    if (!arguments_.json)
      std::printf("%s %s, %s\n %s\n #transport      t_median[msec]  t_min[msec]   GB/sec\n", kRule,
                  arrangement.name, arrangement.caption, conditions.c_str());
    if (device_.empty()) device_ = device;
    Curve curve{arrangement.name, {}};
    for (std::size_t i = 0; i < kCarrierCount; ++i) {
      const double gbytes = static_cast<double>(bytes) * 1e-6 / times[i].median_ms;
      ordered_json row{{"pattern", arrangement.name}};
      kCarriers[i].describe(row);
      row["bytes"] = bytes;
      row["iterations"] = times[i].ms.size();
      row["fct_ms"] = times[i].median_ms;
      row["fct_min_ms"] = times[i].least_ms;
      row["gbytes_per_second"] = gbytes;
      results_.push_back(std::move(row));
      curve.values.push_back(times[i].median_ms);
      if (!arguments_.json)
        std::printf(" %-15s %-15.1f %-13.1f %.3g\n", kCarriers[i].name().c_str(),
                    times[i].median_ms, times[i].least_ms, gbytes);
    }
    curves_.push_back(std::move(curve));
    for (std::size_t i = 1; i + 1 < kCarrierCount; ++i) {
      const std::string name =
          std::string(kCarriers[i].prefix()) + arrangement.ratio_prefix + "fct_resnet152";
      add_ratio(name, times[i].median_ms / times.front().median_ms);
      add_ratio(name + "_vs_tcp", times[i].median_ms / times.back().median_ms);
    }
    std::fflush(stdout);
  }

  void finish() const {
    if (!arguments_.json) {
      std::fputs(kRule, stdout);
      return;
    }
    const Machine machine = this_machine();
    const ordered_json object{
        {"bench", "resnet152"},
        {"device", device_},
        {"transport", "batched against confirm-each and tcp"},
        {"host", {{"cpu", machine.cpu}, {"cores", machine.cores}, {"kernel", machine.kernel}}},
        {"settings", {{"workers", arguments_.workers}, {"iterations", arguments_.iterations}}},
        {"model", blocks_.summary()},
        {"results", results_},
        {"ratios", ratios_}};
    std::cout << object.dump(2) << '\n';
  }

  void draw(const Plotter& plotter) const {
    plotter.draw(blocks_.chart());
    for (const Curve& curve : curves_) {
      Chart chart{Chart::Kind::kBars,
                  "resnet152-" + curve.title,
                  "Parameters of one iteration of ResNet-152, " + curve.title + " on " + device_,
                  "transport",
                  "flow completion time [ms]",
                  {},
                  {curve}};
      for (const Way& carrier : kCarriers) chart.ticks.emplace_back(carrier.name(), 0);
      plotter.draw(chart);
    }
  }

 private:
  static constexpr const char* kRule =
      "---------------------------------------------------------------------------------------\n";

  void add_ratio(const std::string& name, double ratio) {
    ratios_[name] = ratio;
    if (!arguments_.json) std::printf(" %s: %.3f\n", name.c_str(), ratio);
  }

  const ResnetArguments& arguments_;
  const BlockList& blocks_;
  std::string device_;
  std::vector<Curve> curves_;
  ordered_json results_ = ordered_json::array();
  ordered_json ratios_ = ordered_json::object();
};

std::vector<Lane> lanes_of(const ResnetArguments& arguments, bool crowded) {
  std::vector<Lane> lanes;
  for (const Way& carrier : kCarriers) {
    const bool tcp = &carrier == std::end(kCarriers) - 1;
    Options options = carrier.options(tcp ? "tcp" : arguments.device);
    options.spin = std::chrono::microseconds(crowded ? 0 : -1);
    lanes.push_back({carrier.name(), std::move(options)});
  }
  return lanes;
}

void measure(const Arrangement& arrangement, unsigned workers, const ResnetArguments& arguments,
             const BlockList& blocks, StepsBar& bar, ResnetReport& report) {
  const bool crowded = workers + 1 > usable_cores();
  const bool server = &arrangement == &kServer;
  const auto cores = server ? std::nullopt : choose_cores(arguments.cpus);
  Star star(lanes_of(arguments, crowded), workers,
            cores ? std::vector<int>(cores->begin(), cores->end()) : std::vector<int>(),
            blocks.sizes());
  std::array<FlowTimes, kCarrierCount> times;
  // The first iteration finds memory that was never touched, and does not count.
  const std::uint64_t warmup = arguments.quick ? 0 : 1;
  for (std::uint64_t i = 0; i < warmup + arguments.iterations; ++i) {
    for (unsigned carrier = 0; carrier < kCarrierCount; ++carrier) {
      bar.update(0);
      const Flow flow = server ? star.exchange_flow(carrier, 0, blocks.count())
                               : star.broadcast_flow(carrier, 0, {0, blocks.count()});
      bar.step_done();
      if (i >= warmup) times[carrier].ms.push_back(flow.seconds * 1e3);
    }
  }
  for (FlowTimes& one : times) {
    one.median_ms = median_of(one.ms);
    one.least_ms = *std::ranges::min_element(one.ms);
  }
  const std::string conditions =
      std::to_string(workers + 1) + " processes, " +
      (cores ? "cores " + describe_cores(cores) : std::string("not pinned")) + ", spin " +
      (crowded ? "0, as there are more processes than cores" : "inf") +
      ", all in turn; medians of " + std::to_string(arguments.iterations);
  report.add(arrangement, star.channel(0).device(), conditions,
             blocks.bytes() * (server ? 2 * workers : 1), times);
}

void run(ResnetArguments arguments) {
  const BlockList blocks(resnet152_blocks());
  if (arguments.list) {
    if (arguments.json) {
      std::cout << ordered_json{{"bench", "resnet152"},
                                {"model", blocks.summary()},
                                {"blocks", blocks.list()}}
                       .dump(2)
                << '\n';
    } else {
      blocks.print_list();
      blocks.print_summary();
    }
    return;
  }
  if (arguments.quick) arguments.iterations = 1;
  std::unique_ptr<Plotter> plotter;
  if (!arguments.plots.empty()) plotter = std::make_unique<Plotter>(arguments.plots);
  const std::uint64_t iterations = arguments.iterations + (arguments.quick ? 0 : 1);
  StepsBar bar("resnet152", 2 * iterations * kCarrierCount);
  ResnetReport report(arguments, blocks);
  measure(kOneToOne, 1, arguments, blocks, bar, report);
  measure(kServer, arguments.workers, arguments, blocks, bar, report);
  report.finish();
  if (plotter) report.draw(*plotter);
}

constexpr const char* kFooterOfResnet152 =
    R"(Every parameter tensor of ResNet-152 with identity mappings (v2) is a message: convolutions, the
biases that some have, gamma and beta of the batch normalization, the last layer; 514 in all, as
HiPower counts. Flow completion time is from the start of the first sender until the last receiver
has the last tensor. Over a parameter server all workers send their gradients to it, and once it has
all, it sends the parameters to each of them. Each process sends from 241 MB of memory of its own;
messages are received in place and their numbers checked. "unbundled" is batched with
batched_bundles=no.

  leat-bench resnet152                  the table, in about a minute
  leat-bench resnet152 --list           all tensors and how their sizes are distributed
  leat-bench resnet152 -n 1 -d ib       one counted iteration, over a verbs device)";

}  // namespace

Run declare_resnet152(CLI::App& command) {
  const auto arguments = std::make_shared<ResnetArguments>();
  command
      .add_option("--workers", arguments->workers,
                  "Workers of the parameter server; each is a process")
      ->check(CLI::Range(1, 16))
      ->capture_default_str()
      ->type_name("N");
  command
      .add_option(
          "-n,--iterations", arguments->iterations,
          "Counted iterations of each transport, which take turns, after one that is not counted")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str()
      ->type_name("N");
  command.add_flag("--list", arguments->list, "Print all tensors and their sizes; measure nothing");
  command.add_flag("--quick", arguments->quick,
                   "Run a single iteration, to see whether it works; its figures mean nothing");
  command
      .add_option("-d,--device", arguments->device,
                  "shm, ib or ib:NAME, for batched and confirm-each (default: the best for this "
                  "host)")
      ->type_name("NAME");
  add_cpus_argument(command, arguments->cpus,
                    "Cores of one-to-one: sender,receiver (default: two cores if there are two)");
  add_json_argument(command, arguments->json);
  add_plots_argument(command, arguments->plots,
                     "Draw times and block sizes as SVG into this folder (needs gnuplot)");
  command.footer(kFooterOfResnet152);
  return [arguments] { run(*arguments); };
}

}  // namespace leat::bench
