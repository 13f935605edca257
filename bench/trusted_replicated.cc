// The replicated systems, every node a process: throughput with many commands under way, and the
// true latency of a request, from its signing to the quorum of answers.
#include <algorithm>
#include <array>
#include <cstdio>
#include <list>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "forked_peer.h"
#include "leat/listener.h"
#include "leat/trusted/chain.h"
#include "leat/trusted/client.h"
#include "leat/trusted/counter.h"
#include "measure.h"
#include "steps_bar.h"
#include "trusted.h"

namespace leat::bench {
namespace {

using namespace leat::trusted;

constexpr std::uint64_t kEpoch = 1;
constexpr std::uint32_t kFirstSession = 1;
constexpr PartyId kClient = 101;
constexpr std::size_t kReplicas = 3;
constexpr std::size_t kWindow = 8;
constexpr std::size_t kAlone = 1000;  // requests of one command, one after the other

// TNIC, ASPLOS 2025: thousand operations a second at batches of 1, 8 and 16 (0: not published).
// There the leader, or head, makes up the commands itself: no clients, no signatures.
struct Published {
  const char* name;
  std::array<double, 3> thousand_per_s;
};
constexpr std::array<unsigned, 3> kBatches{1, 8, 16};
constexpr std::array<Published, 5> kCounter{{{"SSL-lib", {175, 831.6, 1112}},
                                             {"SSL-server", {22, 159.6, 291.6}},
                                             {"SGX", {5.366, 42.04, 82.05}},
                                             {"AMD-sev", {7.673, 59.57, 115.1}},
                                             {"TNIC", {29.27, 210.3, 459.5}}}};
constexpr std::array<Published, 5> kChain{{{"SSL-lib", {198.6, 0, 0}},
                                           {"SSL-server", {33.81, 0, 0}},
                                           {"SGX", {8.459, 0, 0}},
                                           {"AMD-sev", {12.19, 0, 0}},
                                           {"TNIC", {42.61, 0, 0}}}};

// What a system has of its own.
struct System {
  const char* name;
  const char* title;
  std::size_t quorum;
  Bytes command;  // and each of its outputs must be right
  bool counts;    // the last output is the sum of all commands
  const char* figure;
  const std::array<Published, 5>& published;
};
const System& system_of(const std::string& name) {
  static const System kSystems[] = {
      {"counter", "BFT counter", 2, CounterMachine::add(1), true, "figure 10", kCounter},
      // 60 bytes of context, as in the paper.
      {"chain", "chain replication, put()", kReplicas,
       KeyValueMachine::put(std::string(16, 'k'), std::string(44, 'v')), false, "figure 11",
       kChain}};
  return kSystems[name == "chain" ? 1 : 0];
}

SigningKey key_of(PartyId id) {
  std::array<std::byte, 32> seed{};
  seed[0] = static_cast<std::byte>(id);
  return SigningKey(seed);
}

std::vector<Party> make_parties() {
  std::vector<Party> parties{{kClient, key_of(kClient).public_key(), {}}};
  std::vector<leat::Listener> listeners;  // all at once, so that their ports differ
  for (PartyId id = 1; id <= kReplicas; ++id)
    parties.push_back(
        {id, key_of(id).public_key(), listeners.emplace_back("127.0.0.1:0").address()});
  return parties;
}

leat::Options channel_options() {
  leat::Options options;
  options.device = "shm";
  options.spin = std::chrono::microseconds(0);  // more processes than cores
  options.connect_retry = true;
  return options;
}

void run_node(PartyId id, const System& system, const Directory& directory,
              const std::vector<PartyId>& nodes, unsigned batch) {
  LocalKernel kernel(id, kEpoch);
  for (const PartyId sender : nodes) {
    const std::vector<std::byte> key(kMinKeyBytes, static_cast<std::byte>(sender));
    const bool own = sender == id;
    kernel.provision({.id = kFirstSession + sender - 1,
                      .role = own ? Role::kGroupSender : Role::kGroupReceiver,
                      .peer = own ? 0 : sender,
                      .key = key});
  }
  kernel.enable();
  const SigningKey key = key_of(id);
  const FaultHook hook = [](const Fault& fault) {
    std::fprintf(stderr, "node %u: %s\n", fault.accused,
                 std::string(to_string(fault.kind)).c_str());
  };
  std::unique_ptr<Participant> node;
  if (system.counts) {
    node = std::make_unique<BftReplica>(
        kernel, directory, key, [] { return std::make_unique<CounterMachine>(); },
        BftOptions{.replicas = nodes, .first_session = kFirstSession, .batch = batch}, hook);
  } else {
    node = std::make_unique<ChainNode>(
        kernel, directory, key, [] { return std::make_unique<KeyValueMachine>(); },
        ChainOptions{.nodes = nodes, .first_session = kFirstSession, .batch = batch}, hook);
  }
  serve(*node, directory, key,
        {.self = id, .epoch = kEpoch, .nodes = nodes, .channel = channel_options()},
        [] { return false; });
}

struct Measured {
  double per_s = 0;
  Latency::Distribution loaded{};  // of whole requests, while many are under way
  Latency::Distribution alone{};   // of requests of one command, one at a time
};

Measured measure(const System& system, unsigned batch, const TrustedArguments& arguments,
                 StepsBar& bar) {
  const Directory directory(make_parties());
  const std::vector<PartyId> nodes{1, 2, 3};
  static_assert(kReplicas == 3);
  std::list<ForkedPeer> processes;
  for (const PartyId id : nodes)
    processes.emplace_back(
        [&, id](const ForkedPeer::Tell&) { run_node(id, system, directory, nodes, batch); });

  const SigningKey key = key_of(kClient);
  ClientOptions client_options{.self = kClient,
                               .epoch = kEpoch,
                               .nodes = nodes,
                               .quorum = system.quorum,
                               .window = kWindow,
                               .channel = channel_options()};
  Client client(directory, key, client_options);
  const TickClock clock;
  std::uint64_t sum = 0;
  const auto check = [&](const Answer& answer) {
    sum += answer.outputs.size();
    const Bytes& last = answer.outputs.back();
    if (system.counts ? CounterMachine::value_of(last) != sum
                      : KeyValueMachine::status_of(last) != KeyValueMachine::Status::kOk)
      throw std::runtime_error("a wrong answer");
  };
  const std::vector<Bytes> commands(arguments.request, system.command);
  for (std::size_t i = 0; i < kWindow; ++i) {  // warm
    client.submit(commands);
    check(client.receive());
  }

  Measured measured;
  const std::size_t requests =
      std::max<std::size_t>(4 * kWindow, arguments.commands / arguments.request);
  std::vector<std::uint64_t> sent(requests);
  std::vector<double> times;
  const std::uint64_t start = clock.now();
  for (std::size_t i = 0; i < requests + kWindow; ++i) {
    if (i >= kWindow) {
      check(client.receive());
      times.push_back(clock.microseconds(clock.now() - sent[i - kWindow]));
      if (i % 16 == 0) bar.update(static_cast<double>(i) / static_cast<double>(requests + kWindow));
    }
    if (i < requests) {
      sent[i] = clock.now();
      client.submit(commands);
    }
  }
  const double seconds = clock.microseconds(clock.now() - start) * 1e-6;
  measured.per_s = static_cast<double>(requests * arguments.request) / seconds;
  measured.loaded = distribution_of(std::move(times));

  const std::vector<Bytes> one(1, system.command);
  times.assign(kAlone, 0);
  for (double& time : times) {
    const std::uint64_t begin = clock.now();
    client.submit(one);
    check(client.receive());
    time = clock.microseconds(clock.now() - begin);
  }
  measured.alone = distribution_of(std::move(times));
  bar.step_done();
  return measured;
}

nlohmann::ordered_json to_json(const Latency::Distribution& latency) {
  return {{"p50", latency.typical_us},
          {"p90", latency.p90_us},
          {"p99", latency.p99_us},
          {"p999", latency.p999_us},
          {"max", latency.max_us}};
}

void print_latency(const char* what, const Latency::Distribution& latency) {
  std::printf("   %-44s median %9.1f, 90 %% %9.1f, 99 %% %9.1f, most %9.1f\n", what,
              latency.typical_us, latency.p90_us, latency.p99_us, latency.max_us);
}

}  // namespace

TrustedResult measure_replicated(const TrustedArguments& arguments) {
  const System& system = system_of(arguments.system);
  TrustedResult result;
  std::vector<unsigned> batches(kBatches.begin(), kBatches.end());
  if (arguments.batch != 0) batches = {arguments.batch};
  StepsBar bar(system.name, batches.size());
  if (!arguments.json)
    std::printf(" %s: %zu nodes and a client, each a process; %zu commands under one signature\n",
                system.title, kReplicas, arguments.request);
  for (const unsigned batch : batches) {
    const Measured measured = measure(system, batch, arguments, bar);
    result.results.push_back({{"batch", batch},
                              {"nodes", kReplicas},
                              {"commands_per_request", arguments.request},
                              {"requests_under_way", kWindow},
                              {"command_per_s", measured.per_s},
                              {"request_us", to_json(measured.loaded)},
                              {"single_command_us", to_json(measured.alone)}});
    const auto column = std::ranges::find(kBatches, batch);
    const std::string name = system.name + ("_batch" + std::to_string(batch));
    result.ratios[name + "_per_s"] = measured.per_s;
    if (!arguments.json)
      std::printf(" batch %-3u %10.1f thousand commands a second\n", batch, measured.per_s * 1e-3);
    for (const Published& other : system.published) {
      if (column == kBatches.end()) break;
      const double published = other.thousand_per_s[column - kBatches.begin()];
      if (published == 0) continue;
      const double ratio = measured.per_s * 1e-3 / published;
      if (std::string(other.name) == "TNIC") result.ratios[name + "_vs_tnic"] = ratio;
      if (std::string(other.name) == "SSL-lib") result.ratios[name + "_vs_ssl_lib"] = ratio;
      if (!arguments.json)
        std::printf("   %-12s %10.1f published (%s), %6.2f times that\n", other.name, published,
                    system.figure, ratio);
    }
    if (arguments.json) continue;
    std::printf("   true latency, microseconds:\n");
    print_latency(("a request, " + std::to_string(kWindow) + " under way").c_str(),
                  measured.loaded);
    print_latency("one command alone", measured.alone);
  }
  return result;
}

}  // namespace leat::bench
