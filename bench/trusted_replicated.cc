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

// TNIC, ASPLOS 2025, figure 10: thousand operations a second at batches of 1, 8 and 16. There the
// leader makes up the commands itself: no clients, no signatures.
struct Published {
  const char* name;
  std::array<double, 3> thousand_per_s;
};
constexpr std::array<unsigned, 3> kBatches{1, 8, 16};
constexpr Published kCounter[] = {{"SSL-lib", {175, 831.6, 1112}},
                                  {"SSL-server", {22, 159.6, 291.6}},
                                  {"SGX", {5.366, 42.04, 82.05}},
                                  {"AMD-sev", {7.673, 59.57, 115.1}},
                                  {"TNIC", {29.27, 210.3, 459.5}}};

SigningKey key_of(PartyId id) {
  std::array<std::byte, 32> seed{};
  seed[0] = static_cast<std::byte>(id);
  return SigningKey(seed);
}

std::vector<Party> make_parties() {
  std::vector<Party> parties{{kClient, key_of(kClient).public_key(), {}}};
  std::vector<leat::Listener> listeners;  // all at once, so that their ports differ
  for (PartyId id = 1; id <= kReplicas; ++id)
    parties.push_back({id, key_of(id).public_key(), listeners.emplace_back("127.0.0.1:0").address()});
  return parties;
}

leat::Options channel_options() {
  leat::Options options;
  options.device = "shm";
  options.spin = std::chrono::microseconds(0);  // more processes than cores
  options.connect_retry = true;
  return options;
}

void run_replica(PartyId id, const Directory& directory, const BftOptions& options) {
  LocalKernel kernel(id, kEpoch);
  for (const PartyId sender : options.replicas) {
    const std::vector<std::byte> key(kMinKeyBytes, static_cast<std::byte>(sender));
    const bool own = sender == id;
    kernel.provision({.id = kFirstSession + sender - 1,
                      .role = own ? Role::kGroupSender : Role::kGroupReceiver,
                      .peer = own ? 0 : sender,
                      .key = key});
  }
  kernel.enable();
  const SigningKey key = key_of(id);
  BftReplica replica(kernel, directory, key, [] { return std::make_unique<CounterMachine>(); },
                     options, [](const Fault& fault) {
                       std::fprintf(stderr, "node %u: %s\n", fault.accused,
                                    std::string(to_string(fault.kind)).c_str());
                     });
  serve(replica, directory, key,
        {.self = id, .epoch = kEpoch, .nodes = options.replicas, .channel = channel_options()},
        [] { return false; });
}

struct Measured {
  double per_s = 0;
  Latency::Distribution loaded{};  // of whole requests, while many are under way
  Latency::Distribution alone{};   // of requests of one command, one at a time
};

Measured measure(unsigned batch, const TrustedArguments& arguments, StepsBar& bar) {
  const Directory directory(make_parties());
  BftOptions options{.faults = 1, .first_session = kFirstSession, .batch = batch};
  for (PartyId id = 1; id <= kReplicas; ++id) options.replicas.push_back(id);
  std::list<ForkedPeer> replicas;
  for (const PartyId id : options.replicas)
    replicas.emplace_back(
        [&, id](const ForkedPeer::Tell&) { run_replica(id, directory, options); });

  const SigningKey key = key_of(kClient);
  ClientOptions client_options{.self = kClient,
                               .epoch = kEpoch,
                               .nodes = options.replicas,
                               .quorum = options.faults + 1,
                               .window = kWindow,
                               .channel = channel_options()};
  Client client(directory, key, client_options);
  const TickClock clock;
  std::uint64_t sum = 0;
  const auto check = [&sum](const Answer& answer) {
    sum += answer.outputs.size();
    if (CounterMachine::value_of(answer.outputs.back()) != sum)
      throw std::runtime_error("the counter counts wrong");
  };
  const std::vector<Bytes> commands(arguments.request, CounterMachine::add(1));
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

  const std::vector<Bytes> one(1, CounterMachine::add(1));
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

TrustedResult measure_counter(const TrustedArguments& arguments) {
  TrustedResult result;
  std::vector<unsigned> batches(kBatches.begin(), kBatches.end());
  if (arguments.batch != 0) batches = {arguments.batch};
  StepsBar bar("counter", batches.size());
  if (!arguments.json)
    std::printf(
        " BFT counter: %zu replicas and a client, each a process; %zu commands under one signature\n",
        kReplicas, arguments.request);
  for (const unsigned batch : batches) {
    const Measured measured = measure(batch, arguments, bar);
    result.results.push_back({{"batch", batch},
                              {"replicas", kReplicas},
                              {"commands_per_request", arguments.request},
                              {"requests_under_way", kWindow},
                              {"command_per_s", measured.per_s},
                              {"request_us", to_json(measured.loaded)},
                              {"single_command_us", to_json(measured.alone)}});
    const auto column = std::ranges::find(kBatches, batch);
    const std::string name = "counter_batch" + std::to_string(batch);
    result.ratios[name + "_per_s"] = measured.per_s;
    if (!arguments.json)
      std::printf(" batch %-3u %10.1f thousand commands a second\n", batch, measured.per_s * 1e-3);
    if (column != kBatches.end()) {
      const auto index = static_cast<std::size_t>(column - kBatches.begin());
      for (const Published& system : kCounter) {
        const double ratio = measured.per_s * 1e-3 / system.thousand_per_s[index];
        if (std::string(system.name) == "TNIC") result.ratios[name + "_vs_tnic"] = ratio;
        if (std::string(system.name) == "SSL-lib") result.ratios[name + "_vs_ssl_lib"] = ratio;
        if (!arguments.json)
          std::printf("   %-12s %10.1f published (figure 10), %6.2f times that\n", system.name,
                      system.thousand_per_s[index], ratio);
      }
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
