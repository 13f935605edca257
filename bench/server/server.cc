// leat-bench server: one thread that serves many channels, most of them idle, beside plain TCP with
// epoll.
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "arguments.h"
#include "cli/allowed.h"
#include "measure.h"
#include "server/report.h"
#include "server/run.h"
#include "steps_bar.h"
#include "subcommand.h"

namespace leat::bench {
namespace {

// Larger messages could fill both directions of a connection whose client still sends on others.
constexpr std::size_t kMostBytes = 32 << 10;
constexpr std::size_t kMostChannels = 1'000'000;
constexpr ServerWay kWays[] = {ServerWay::kEpoll, ServerWay::kPoller, ServerWay::kWaitAny,
                               ServerWay::kBlocking, ServerWay::kPoll};

struct ServerArguments {
  std::vector<std::size_t> channels{1, 100, 1000};
  std::string active = "1";
  std::size_t bytes = 64;
  std::vector<std::string> ways{"epoll", "poller", "wait_any", "blocking", "poll"};
  std::size_t clients = 4;
  std::string device;
  std::string transport;
  std::string spin_us;
  std::uint64_t iterations = 5000;
  unsigned rounds = 5;
  std::vector<int> cpus;
  bool json = false;
};

class ServerBench {
 public:
  explicit ServerBench(const ServerArguments& arguments)
      : arguments_(arguments), cores_(choose_cores(arguments.cpus)), limit_(raise_limit()) {
    if (!arguments.device.empty()) options_.device = arguments.device;
    if (!arguments.transport.empty()) options_.transport = arguments.transport;
  }

  void run() {
    check_limit();
    ServerReport report(arguments_.json, lines(), settings());
    StepsBar bar("server", arguments_.channels.size());
    for (const std::size_t channels : arguments_.channels) {
      const std::vector<ServerRow> rows = measure(channels, bar);
      bar.step_done();
      report.add(channels, rows);
    }
    report.finish();
  }

 private:
  // Descriptors that this process and those that it starts may have.
  static std::size_t raise_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
      throw std::system_error(errno, std::generic_category(), "getrlimit");
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
      throw std::system_error(errno, std::generic_category(), "setrlimit");
    return limit.rlim_cur;
  }

  bool has(ServerWay way) const {
    return std::ranges::find(arguments_.ways, to_string(way)) != arguments_.ways.end();
  }

  // Two connections say how many descriptors one needs.
  void check_limit() const {
    constexpr std::size_t kOthers = 64;  // of the process, and of handshakes under way
    const std::size_t most = *std::ranges::max_element(arguments_.channels);
    const ServerWay way = has(ServerWay::kEpoll) ? ServerWay::kEpoll : ServerWay::kPoll;
    ServerLoad load = load_for(way, 2);
    load.warmup = 0;
    load.exchanges = 1;
    const auto each = static_cast<std::size_t>(std::ceil(run_server(load).fds_each));
    const std::size_t allowed = limit_ > kOthers ? (limit_ - kOthers) / each : 0;
    if (most <= allowed) return;
    throw std::runtime_error(
        std::to_string(most) + " channels need " + std::to_string(each) +
        " descriptors each, and the limit of " + std::to_string(limit_) + " descriptors allows " +
        std::to_string(allowed) +
        " connections. Raise the limit (ulimit -Hn, LimitNOFILE), or give fewer --channels.");
  }

  std::size_t active_of(std::size_t channels) const {
    return arguments_.active == "all" ? channels
                                      : std::min(channels, std::stoul(arguments_.active));
  }
  // Of the processes, those whose channels are active.
  std::size_t busy_clients() const {
    const std::size_t most = *std::ranges::max_element(arguments_.channels);
    return std::min(arguments_.clients, active_of(most));
  }
  // Where more processes exchange than there are cores, nobody spins, so that nobody waits for the
  // time slice of another to end.
  bool crowded() const { return busy_clients() + 1 > usable_cores(); }
  bool spins() const { return arguments_.spin_us != "0" && !crowded(); }
  bool pinned() const { return cores_ && busy_clients() == 1; }

  // Whether the server's thread spins. What waits as leat's calls do obeys the settings.
  bool server_spins(ServerWay way) const {
    return way == ServerWay::kPoll || way == ServerWay::kTcpSpin ||
           ((way == ServerWay::kPoller || way == ServerWay::kWaitAny ||
             way == ServerWay::kBlocking) &&
            spins());
  }

  ServerLoad load_for(ServerWay way, std::size_t channels) const {
    ServerLoad load{.way = way,
                    .channels = channels,
                    .active = active_of(channels),
                    .clients = std::min(arguments_.clients, channels),
                    .bytes = arguments_.bytes,
                    .clients_spin = spins(),
                    .options = options_};
    if (pinned()) load.cores = cores_;
    load.exchanges = std::max<std::uint64_t>(1, arguments_.iterations / load.active);
    load.warmup = load.exchanges / 10 + 1;
    if (!spins()) {
      load.options.spin = std::chrono::microseconds(0);
    } else if (!arguments_.spin_us.empty()) {
      load.options.spin = parse_spin(arguments_.spin_us);
    }
    return load;
  }

  // The ways that take turns: leat's, and plain TCP once for each kind of wait of theirs.
  std::vector<ServerRow> rows_for(std::size_t channels) const {
    std::vector<ServerRow> rows;
    std::vector<ServerWay> tcp;
    for (const ServerWay way : kWays) {
      if (!has(way)) continue;
      const std::size_t count = way == ServerWay::kBlocking ? 1 : channels;
      const bool spins = server_spins(way);
      rows.push_back({.way = way,
                      .channels = count,
                      .active = active_of(count),
                      .spins = spins,
                      .beside = spins ? ServerWay::kTcpSpin : ServerWay::kTcp});
      if (std::ranges::find(tcp, rows.back().beside) == tcp.end())
        tcp.push_back(rows.back().beside);
    }
    for (const ServerWay way : tcp)
      rows.push_back({.way = way,
                      .channels = channels,
                      .active = active_of(channels),
                      .spins = server_spins(way)});
    return rows;
  }

  std::vector<ServerRow> measure(std::size_t channels, StepsBar& bar) const {
    std::vector<ServerRow> rows = rows_for(channels);
    std::vector<std::vector<ServerFigures>> rounds(rows.size());
    const auto steps = static_cast<double>(arguments_.rounds * rows.size());
    double done = 0;
    for (unsigned round = 0; round < arguments_.rounds; ++round) {
      for (std::size_t i = 0; i < rows.size(); ++i) {
        bar.update(done++ / steps);
        rounds[i].push_back(run_server(load_for(rows[i].way, rows[i].channels)));
      }
    }
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].figures = medians(rounds[i]);
    return rows;
  }

  static ServerFigures medians(const std::vector<ServerFigures>& rounds) {
    ServerFigures figures = rounds.front();
    for (double ServerFigures::*value :
         {&ServerFigures::round_trip_us, &ServerFigures::messages_per_second,
          &ServerFigures::connect_s, &ServerFigures::close_s, &ServerFigures::kib_each,
          &ServerFigures::fds_each}) {
      std::vector<double> values;
      for (const ServerFigures& round : rounds) values.push_back(round.*value);
      figures.*value = median_of(std::move(values));
    }
    return figures;
  }

  std::vector<std::pair<std::string, std::string>> lines() const {
    const std::string count = std::to_string(arguments_.clients);
    const std::string waits = spins()     ? "spin"
                              : crowded() ? "sleep, as more processes exchange than there are cores"
                                          : "sleep";
    return {{"Cores", pinned() ? describe_cores(cores_) : "not pinned"},
            {"Clients", count + " processes, " + std::to_string(busy_clients()) +
                            " of them with active channels"},
            {"Clients' waits", waits},
            {"Messages", std::to_string(arguments_.bytes) + " bytes, there and back"},
            {"Rounds", std::to_string(arguments_.rounds) + " of " +
                           std::to_string(arguments_.iterations) +
                           " round trips over new connections, all ways in turn; medians"},
            {"Ratios",
             "of round trips: to the tcp whose server waits alike, and to the blocking "
             "pair"}};
  }

  nlohmann::ordered_json settings() const {
    return {{"bytes", arguments_.bytes},
            {"clients", arguments_.clients},
            {"clients_spin", spins()},
            {"rounds", arguments_.rounds},
            {"iterations", arguments_.iterations}};
  }

  const ServerArguments& arguments_;
  const std::optional<CorePair> cores_;
  const std::size_t limit_;
  Options options_;
};

constexpr const char* kFooter =
    R"(Each way, and each kind of plain TCP, has a server and clients of its own in every round, all in
turn. The active channels are spread evenly over all, and over the client processes; a client sends a
message on each of its own and then takes the answers. tcp sleeps in epoll_wait, as epoll does;
tcp_spin calls it without end, and stands beside the ways whose server spins. TCP's clients spin if
leat's do. Memory is what the server has resident; Linux's own for sockets is not in it.

  leat-bench server                                 the table, in some minutes
  leat-bench server --spin-us 0                     the same with waits that sleep at once
  leat-bench server --channels 200 --active all     all of them busy
  leat-bench server --wait epoll -r 1 -n 100        does it run at all? In seconds)";

}  // namespace

Run declare_server(CLI::App& command) {
  const auto arguments = std::make_shared<ServerArguments>();
  command.add_option("--channels", arguments->channels, "Channels of the server: 1, or 1,100,1000")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{1}, kMostChannels).description(""))
      ->default_str("1,100,1000")
      ->type_name("N");
  command
      .add_option("--active", arguments->active,
                  "How many of them exchange messages, or all; where there are fewer, all of them")
      ->check([](const std::string& text) {
        const bool digits = text.find_first_not_of("0123456789") == std::string::npos;
        return text == "all" ||
                       (digits && !text.empty() && text.size() < 16 && std::stoull(text) > 0)
                   ? std::string()
                   : "'" + text + "' is not a number of channels. Give 1 or more, or all.";
      })
      ->capture_default_str()
      ->type_name("M");
  command.add_option("-s,--size", arguments->bytes, "Bytes of a message (K for 1024)")
      ->transform(cli::size_between(1, kMostBytes))
      ->capture_default_str()
      ->type_name("BYTES");
  command
      .add_option(
          "--wait", arguments->ways,
          "How the server waits: epoll (on Channel::fd()), poller, wait_any, blocking (one "
          "channel, the reference), poll (tries every channel without end); several with commas")
      ->delimiter(',')
      ->check(cli::one_of({"epoll", "poller", "wait_any", "blocking", "poll"}))
      ->default_str("epoll,poller,wait_any,blocking,poll")
      ->type_name("LIST");
  command.add_option("--clients", arguments->clients, "Processes that the channels come from")
      ->check(CLI::Range(1, 64))
      ->capture_default_str()
      ->type_name("N");
  command
      .add_option("-n,--iters", arguments->iterations,
                  "Round trips of each round, all active channels together")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{100'000'000}).description(""))
      ->capture_default_str()
      ->type_name("N");
  add_rounds_argument(command, arguments->rounds);
  add_link_arguments(command, arguments->device, arguments->transport);
  add_spin_argument(command, arguments->spin_us);
  add_cpus_argument(command, arguments->cpus,
                    "Cores: the server's,the clients' (default: two cores if there are two and one "
                    "client process has all active channels; else not pinned)");
  add_json_argument(command, arguments->json);
  command.footer(kFooter);
  return [arguments] { ServerBench(*arguments).run(); };
}

}  // namespace leat::bench
