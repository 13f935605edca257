// leat-bench confirm: transport batched, with bundles and without, against confirm-each, in turns,
// in the patterns in which programs use them.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "arguments.h"
#include "cli/allowed.h"
#include "confirm/report.h"
#include "confirm/star.h"
#include "confirm/ways.h"
#include "machine.h"
#include "measure.h"
#include "steps_bar.h"
#include "subcommand.h"

namespace leat::bench {
namespace {

using std::chrono::microseconds;

constexpr Way kConfirmEach{"confirm-each"};
constexpr std::size_t kWordBytes = 16;  // the short side of a round trip with many
// A stream fills what the receiver has room for some times over, in bytes and in slots, or it would
// not have to wait for any. A slot of 4 KiB holds up to 57 messages of 64 bytes with batched.
constexpr std::uint64_t kLeast = 64;
constexpr std::uint64_t kMost = std::uint64_t{1} << 22;
constexpr std::uint64_t kMostRoundTrips = std::uint64_t{1} << 17;
constexpr double kPauseSeconds = 0.01;
// The round trips of a message that is answered in kind are halved.
constexpr double kHalf = 0.5;

struct ConfirmArguments {
  std::vector<Pattern> patterns{Pattern::kOneToOne};
  unsigned workers = 4;
  std::vector<std::size_t> sizes{64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576};
  std::vector<std::size_t> thresholds;
  // Many short rounds, so that what disturbs some of them is not in the medians.
  std::uint64_t rounds = 9;
  double seconds = 0.1;
  double idle_seconds = 3;
  unsigned pauses = 100;
  std::uint64_t least_stream_bytes = std::uint64_t{8} << 20;
  bool quick = false;
  std::string device;
  std::string spin_us;
  std::optional<std::size_t> slot_bytes;
  std::optional<std::size_t> slot_count;
  std::vector<int> cpus;
  bool json = false;
  std::string plots;
};

void make_quick(ConfirmArguments& arguments) {
  arguments.rounds = 1;
  arguments.seconds = 0.005;
  // Several times the slots with the shortest messages, so that slots are confirmed at all.
  arguments.least_stream_bytes = std::uint64_t{128} << 10;
  arguments.idle_seconds = 0.2;
  arguments.pauses = 5;
}

// The baseline, and batched with bundles and without at each threshold.
std::vector<Way> ways_of(const ConfirmArguments& arguments) {
  std::vector<std::optional<std::size_t>> thresholds(arguments.thresholds.begin(),
                                                     arguments.thresholds.end());
  if (thresholds.empty()) thresholds.emplace_back();
  std::vector<Way> ways{kConfirmEach};
  for (const std::optional<std::size_t>& threshold : thresholds)
    for (const bool bundles : {true, false}) ways.push_back({"batched", bundles, threshold});
  return ways;
}

Options options_for(const ConfirmArguments& arguments, const Way& way) {
  Options options = way.options(arguments.device);
  options.slot_bytes = arguments.slot_bytes;
  options.slot_count = arguments.slot_count;
  return options;
}

// The number of messages, from `least` to `most`, that take about `seconds`; found by `run`, which
// takes a number and returns the time. The faster of two runs, or one that was disturbed would
// lead to far too few.
template <typename Run>
std::uint64_t count_for(double seconds, std::uint64_t least, std::uint64_t most, Run&& run) {
  for (std::uint64_t count = least;; count *= 4) {
    const double first = run(count);
    const double took = std::min(first, run(count));
    if (took < seconds / 8 && count < most) continue;
    const double fits = static_cast<double>(count) * seconds / took;
    return static_cast<std::uint64_t>(
        std::clamp(fits, static_cast<double>(least), static_cast<double>(most)));
  }
}

std::uint64_t least_stream(const ConfirmArguments& arguments, std::size_t bytes) {
  constexpr std::uint64_t kEnough = 16384;
  return std::clamp<std::uint64_t>(arguments.least_stream_bytes / bytes, kLeast, kEnough);
}

FlowLength with_warmup(std::uint64_t count) { return {count / 5, count}; }

// One pattern: a star of processes, and all sizes measured in it.
class PatternRun {
 public:
  PatternRun(const ConfirmArguments& arguments, Pattern pattern)
      : arguments_(arguments),
        pattern_(pattern),
        ways_(ways_of(arguments)),
        workers_(pattern == Pattern::kOneToOne ? 1 : arguments.workers),
        // Where each process has a core they spin, and what they need is measured once more
        // without.
        crowded_(workers_ + 1 > usable_cores()),
        cores_(workers_ == 1 ? choose_cores(arguments.cpus) : std::nullopt),
        star_(lanes(), workers_,
              cores_ ? std::vector<int>(cores_->begin(), cores_->end()) : std::vector<int>()) {}

  void run(StepsBar& bar, ConfirmReport& report) {
    report.begin(pattern_, star_.channel(0).device(), lines());
    for (const std::size_t bytes : arguments_.sizes) {
      bar.update(0);
      const Counts counts = count_messages(bytes);
      std::vector<std::vector<Figures>> rounds(ways_.size());
      for (std::uint64_t round = 0; round < arguments_.rounds; ++round) {
        for (std::size_t i = 0; i < ways_.size(); ++i) {
          // In the next round another one begins.
          const auto way = static_cast<unsigned>((i + round) % ways_.size());
          rounds[way].push_back(measure(way, bytes, counts));
          bar.step_done();
          bar.update(0);
        }
      }
      bar.clear();
      std::vector<Figures> medians;
      for (const std::vector<Figures>& each : rounds) medians.push_back(medians_of(each));
      report.add(bytes, workers_ * counts.stream, std::move(medians));
    }
  }

 private:
  struct Counts {
    std::uint64_t stream = 0;
    std::uint64_t sleeping = 0;
    std::uint64_t round_trips = 0;
  };

  std::chrono::microseconds spin() const {
    if (!arguments_.spin_us.empty()) return parse_spin(arguments_.spin_us);
    return microseconds(crowded_ ? 0 : -1);
  }

  // All ways with the spinning of the run; and if that burns what they do not need, all once more
  // without.
  std::vector<Lane> lanes() const {
    std::vector<Lane> lanes;
    for (const bool sleeping : {false, true}) {
      if (sleeping && crowded_) break;
      for (const Way& way : ways_) {
        Lane lane{way.name(), options_for(arguments_, way)};
        lane.options.spin = sleeping ? microseconds(0) : spin();
        lanes.push_back(std::move(lane));
      }
    }
    return lanes;
  }
  unsigned sleeping_lane(unsigned way) const {
    return crowded_ ? way : way + static_cast<unsigned>(ways_.size());
  }

  Flow flow(unsigned lane, std::size_t bytes, const FlowLength& length) {
    return pattern_ == Pattern::kGather ? star_.gather_flow(lane, bytes, length)
                                        : star_.broadcast_flow(lane, bytes, length);
  }
  std::vector<double> round_trips(unsigned lane, std::size_t bytes, std::uint64_t count) {
    const std::size_t there = pattern_ == Pattern::kGather ? kWordBytes : bytes;
    const std::size_t back = pattern_ == Pattern::kBroadcast ? kWordBytes : bytes;
    return star_.round_trips(lane, there, back, with_warmup(count), clock_);
  }

  // The same for all ways: what takes the slowest one about the time wanted.
  Counts count_messages(std::size_t bytes) {
    Counts counts{kMost, kMost, kMostRoundTrips};
    for (unsigned way = 0; way < ways_.size(); ++way) {
      const auto stream = [&](unsigned lane) {
        return count_for(
            arguments_.seconds, least_stream(arguments_, bytes), kMost,
            [&](std::uint64_t count) { return flow(lane, bytes, with_warmup(count)).seconds; });
      };
      counts.stream = std::min(counts.stream, stream(way));
      if (!crowded_) counts.sleeping = std::min(counts.sleeping, stream(sleeping_lane(way)));
      const auto all_round_trips = [&](std::uint64_t count) {
        double us = 0;
        for (const double time : round_trips(way, bytes, count)) us += time;
        return us * 1e-6;
      };
      counts.round_trips =
          std::min(counts.round_trips,
                   count_for(arguments_.seconds, kLeast, kMostRoundTrips, all_round_trips));
    }
    return counts;
  }

  Figures measure(unsigned way, std::size_t bytes, const Counts& counts) {
    Figures figures;
    const Flow stream = flow(way, bytes, with_warmup(counts.stream));
    const auto messages = static_cast<double>(stream.messages);
    figures.messages_per_second = messages / stream.seconds;
    Usage all = stream.master;
    for (const Usage& worker : stream.workers) {
      all.requests += worker.requests;
      all.completions += worker.completions;
      all.receives += worker.receives;
    }
    figures.requests = static_cast<double>(all.requests) / messages;
    figures.completions = static_cast<double>(all.completions) / messages;
    figures.receives = static_cast<double>(all.receives) / messages;

    const Flow sleeping =
        crowded_ ? stream : flow(sleeping_lane(way), bytes, with_warmup(counts.sleeping));
    const auto cpu_seconds = [](const Usage& usage) { return usage.cpu_seconds * 1e6; };
    std::tie(figures.stream_sender_cpu_us, figures.stream_receiver_cpu_us) =
        per_message(stream, cpu_seconds);
    std::tie(figures.sender_cpu_us, figures.receiver_cpu_us) = per_message(sleeping, cpu_seconds);
    std::tie(figures.sender_sleeps, figures.receiver_sleeps) = per_message(
        sleeping, [](const Usage& usage) { return 1e3 * static_cast<double>(usage.sleeps); });
    std::tie(figures.sender_switches, figures.receiver_switches) = per_message(
        sleeping, [](const Usage& usage) { return 1e3 * static_cast<double>(usage.switches); });

    std::vector<double> times_us = round_trips(way, bytes, counts.round_trips);
    if (pattern_ == Pattern::kOneToOne)
      for (double& time : times_us) time *= kHalf;
    const Latency::Distribution spread = distribution_of(std::move(times_us));
    figures.p50_us = spread.typical_us;
    figures.p90_us = spread.p90_us;
    figures.p99_us = spread.p99_us;
    figures.p999_us = spread.p999_us;
    return figures;
  }

  // Per message, of the sending and of the receiving side.
  template <typename Amount>
  std::pair<double, double> per_message(const Flow& flow, Amount&& amount) const {
    const auto messages = static_cast<double>(flow.messages);
    const double master = amount(flow.master) / messages;
    double workers = 0;
    for (const Usage& worker : flow.workers) workers += amount(worker) / messages;
    return pattern_ == Pattern::kGather ? std::pair(workers, master) : std::pair(master, workers);
  }

  std::vector<std::pair<std::string, std::string>> lines() {
    const std::string processes = std::to_string(workers_ + 1) + " processes";
    const std::string spin = !arguments_.spin_us.empty() ? arguments_.spin_us + " us"
                             : crowded_                  ? "0"
                                                         : "inf";
    const Stats each = star_.channel(0).stats();
    const Stats batched = star_.channel(1).stats();
    return {
        {"Processes", workers_ == 1 ? processes + ", messages in one direction"
                                    : processes + ": a master and its workers"},
        {"Cores", cores_ ? describe_cores(cores_) : "not pinned"},
        {"Spinning", spin + (crowded_ ? ", as there are more processes than cores"
                                      : "; for processor time 0: waits sleep at once")},
        {"Slot memory", std::to_string(each.slot_memory_bytes >> 10) + " KiB confirm-each, " +
                            std::to_string(batched.slot_memory_bytes >> 10) +
                            " KiB batched, a connection, both directions"},
        {"Rounds", std::to_string(arguments_.rounds) + ", all in turn; medians"},
        {"Latency", pattern_ == Pattern::kOneToOne ? "half a round trip of equal messages"
                    : pattern_ == Pattern::kBroadcast
                        ? "a message to every worker, a word back from every one"
                        : "a word to every worker, a message back from every one"},
    };
  }

  const ConfirmArguments& arguments_;
  const Pattern pattern_;
  const std::vector<Way> ways_;
  const unsigned workers_;
  const bool crowded_;
  const std::optional<CorePair> cores_;
  Star star_;
  const TickClock clock_;
};

// A pair that has nothing to do, and the first message when it has again; as programs have it that
// set nothing, and with transport ring beside.
std::vector<Quiet> measure_quiet(const ConfirmArguments& arguments, StepsBar& bar) {
  std::vector<Lane> lanes;
  for (const Way& way : {Way{"ring"}, kConfirmEach, Way{"batched", true}})
    lanes.push_back({way.name(), options_for(arguments, way)});
  const auto cores = choose_cores(arguments.cpus);
  Star star(lanes, 1, cores ? std::vector<int>(cores->begin(), cores->end()) : std::vector<int>());
  std::vector<Quiet> quiet;
  std::vector<std::vector<double>> first_us(lanes.size());
  for (unsigned pause = 0; pause < arguments.pauses; ++pause) {
    bar.update(static_cast<double>(pause) / arguments.pauses);
    for (unsigned lane = 0; lane < lanes.size(); ++lane)
      first_us[lane].push_back(star.first_after_pause(lane, kPauseSeconds));
  }
  bar.step_done();
  for (unsigned lane = 0; lane < lanes.size(); ++lane) {
    bar.update(0);
    const Flow idle = star.idle(lane, arguments.idle_seconds);
    bar.step_done();
    quiet.push_back({lanes[lane].name,
                     (idle.master.cpu_seconds + idle.worker_cpu_seconds()) / idle.seconds,
                     median_of(std::move(first_us[lane]))});
  }
  return quiet;
}

void run(ConfirmArguments arguments) {
  if (arguments.quick) make_quick(arguments);
  std::unique_ptr<Plotter> plotter;
  if (!arguments.plots.empty()) plotter = std::make_unique<Plotter>(arguments.plots);
  const bool has_quiet = std::ranges::count(arguments.patterns, Pattern::kOneToOne) > 0;
  const std::size_t quiet_steps = has_quiet ? 4 : 0;
  const std::vector<Way> ways = ways_of(arguments);
  StepsBar bar("confirm",
               arguments.patterns.size() * arguments.sizes.size() * arguments.rounds * ways.size() +
                   quiet_steps);
  nlohmann::ordered_json settings{{"workers", arguments.workers},
                                  {"rounds", arguments.rounds},
                                  {"seconds", arguments.seconds},
                                  {"spin_us", arguments.spin_us}};
  if (arguments.slot_bytes) settings["slot_bytes"] = *arguments.slot_bytes;
  if (arguments.slot_count) settings["slot_count"] = *arguments.slot_count;
  if (!arguments.thresholds.empty()) settings["thresholds"] = arguments.thresholds;
  ConfirmReport report(arguments.json, std::move(settings), ways);
  for (const Pattern pattern : arguments.patterns) {
    PatternRun(arguments, pattern).run(bar, report);
    if (pattern == Pattern::kOneToOne) report.add(measure_quiet(arguments, bar));
  }
  report.finish();
  if (plotter) report.draw(*plotter);
}

constexpr const char* kFooter =
    R"(One round of a transport is a stream of messages, for throughput and what both sides posted and
polled; the same with spin 0, for processor time; and round trips, for latency. All take turns, with
the same slots; every message carries its number, which its receiver checks in place. Batched is
measured as it is by default, when small messages share slots, and with batched_bundles=no
("unbundled"), when only the way of confirming differs from confirm-each. Ratios are divided by
confirm-each. With one-to-one, quiet channels are measured too: what an idle pair costs, and how
soon a message arrives after a pause, compared with transport ring.

  leat-bench confirm                                the table, in a few minutes
  leat-bench confirm --pattern all --json --plots out    what docs/benchmarks.md shows
  leat-bench confirm --pattern gather -s 64,4K -r 25     many to one, two sizes
  leat-bench confirm --thresholds 0,25,50,75,100 -s 64,512,1K --json
                                                    batched_confirm_threshold, one by one
  leat-bench confirm --quick -d ib:rxe0             does it run at all? In seconds)";

}  // namespace

Run declare_confirm(CLI::App& command) {
  const auto arguments = std::make_shared<ConfirmArguments>();
  const std::map<std::string, std::vector<Pattern>> patterns{
      {"one-to-one", {Pattern::kOneToOne}},
      {"broadcast", {Pattern::kBroadcast}},
      {"gather", {Pattern::kGather}},
      {"all", {Pattern::kOneToOne, Pattern::kBroadcast, Pattern::kGather}}};
  command
      .add_option_function<std::string>(
          "--pattern",
          [arguments, patterns](const std::string& name) {
            arguments->patterns = patterns.at(name);
          },
          "one-to-one: one process to another; broadcast: a master to its workers; gather: the "
          "workers to their master; or all")
      ->check(cli::one_of({"one-to-one", "broadcast", "gather", "all"}))
      ->default_str("one-to-one")
      ->type_name("PATTERN");
  command
      .add_option("--workers", arguments->workers,
                  "Workers of broadcast and gather; each is a process")
      ->check(CLI::Range(1, 64))
      ->capture_default_str()
      ->type_name("N");
  add_sizes_argument(command, arguments->sizes, kLeastBytes);
  command
      .add_option("--thresholds", arguments->thresholds,
                  "Measure batched at each of these batched_confirm_thresholds, in percent: "
                  "0,50,100 (default: at leat's)")
      ->delimiter(',')
      ->check(CLI::Range(0, 100).description("0 to 100"))
      ->type_name("PERCENT");
  command.add_option("-r,--rounds", arguments->rounds, "Rounds of each size, all in turn")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->type_name("N");
  command
      .add_option(
          "--seconds", arguments->seconds,
          "The approximate time of one measurement, which determines the number of messages")
      ->check(CLI::Range(0.001, 3600.0).description("0.001 to 3600"))
      ->capture_default_str()
      ->type_name("SECONDS");
  command.add_option("--idle-seconds", arguments->idle_seconds, "How long to watch an idle pair")
      ->check(CLI::Range(0.01, 3600.0).description("0.01 to 3600"))
      ->capture_default_str()
      ->type_name("SECONDS");
  command.add_flag("--quick", arguments->quick,
                   "Run one short round, to see whether it works; its figures mean nothing");
  command
      .add_option("-d,--device", arguments->device,
                  "shm, ib or ib:NAME (default: the best for this host)")
      ->type_name("NAME");
  add_spin_argument(command, arguments->spin_us);
  command
      .add_option("--slot-bytes", arguments->slot_bytes,
                  "Message bytes in a slot, for both transports (K, M; default: leat's)")
      ->transform(cli::size_between(64, 16 << 20))
      ->type_name("BYTES");
  command
      .add_option("--slot-count", arguments->slot_count,
                  "Slots of each connection and direction, for both transports (default: leat's)")
      ->check(CLI::Range(16, 1024).description("16 to 1024"))
      ->type_name("N");
  add_cpus_argument(command, arguments->cpus,
                    "Cores of one-to-one: sender,receiver (default: two cores if there are two)");
  add_json_argument(command, arguments->json);
  add_plots_argument(command, arguments->plots,
                     "Draw throughput, latency and processor time as SVG into this folder (needs "
                     "gnuplot)");
  command.footer(kFooter);
  return [arguments] { run(*arguments); };
}

}  // namespace leat::bench
