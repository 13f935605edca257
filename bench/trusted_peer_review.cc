// PeerReview: a root, two children and, if they are audited, a witness of all three; each a
// process. Throughput with many commands under way, and the true latency of a request, from its
// signing to the root's answer, which waits for both children.
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
#include "leat/trusted/peer_review.h"
#include "measure.h"
#include "steps_bar.h"
#include "trusted.h"

namespace leat::bench {
namespace {

using namespace leat::trusted;

constexpr std::uint64_t kEpoch = 1;
constexpr PartyId kNodes = 3, kWitness = 4, kClient = 101;
constexpr std::size_t kWindow = 8;
constexpr std::size_t kAlone = 1000;  // requests of one command, one after the other
constexpr std::array<unsigned, 3> kBatches{1, 8, 16};

// TNIC, ASPLOS 2025, figure 12: thousand messages a second, without and with the audit; there is
// no batching. There the root makes up the messages, and audits itself.
struct Published {
  const char* name;
  double plain, audited;
};
constexpr Published kPublished[] = {{"SSL-lib", 109.7, 81.74},
                                    {"SSL-server", 14.33, 10.73},
                                    {"SGX", 3.569, 2.677},
                                    {"AMD-sev", 5.101, 3.824},
                                    {"TNIC", 19.28, 14.46}};

SigningKey key_of(PartyId id) {
  std::array<std::byte, 32> seed{};
  seed[0] = static_cast<std::byte>(id);
  return SigningKey(seed);
}

std::vector<Party> make_parties() {
  std::vector<Party> parties{{kClient, key_of(kClient).public_key(), {}}};
  std::vector<leat::Listener> listeners;  // all at once, so that their ports differ
  for (PartyId id = 1; id <= kWitness; ++id)
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

PeerReviewOptions tree(unsigned batch, bool audited) {
  const std::vector<PartyId> witnesses(audited ? 1 : 0, kWitness);
  PeerReviewOptions options{.nodes = {{1, 0, witnesses}, {2, 1, witnesses}, {3, 1, witnesses}},
                            .batch = batch};
  options.audit_period = std::chrono::milliseconds(0);  // again as soon as one is over
  options.audit_records = 1024;
  return options;
}

void run_party(PartyId id, const Directory& directory, const PeerReviewOptions& options) {
  LocalKernel kernel(id, kEpoch);
  for (PartyId sender = 1; sender <= kNodes; ++sender) {
    const std::vector<std::byte> key(kMinKeyBytes, static_cast<std::byte>(sender));
    const bool own = sender == id;
    kernel.provision({.id = options.first_session + sender - 1,
                      .role = own ? Role::kGroupSender : Role::kGroupReceiver,
                      .peer = own ? 0 : sender,
                      .key = key});
  }
  kernel.enable();
  const SigningKey key = key_of(id);
  const MachineFactory machine = [] { return std::make_unique<CounterMachine>(); };
  const StandingHook hook = [](const StandingChange& change) {
    std::fprintf(stderr, "node %u: %s\n", change.node,
                 change.standing == Standing::kTrusted
                     ? "answers again"
                     : std::string(to_string(change.fault.kind)).c_str());
  };
  std::unique_ptr<Participant> party;
  if (id == kWitness)
    party = std::make_unique<PeerWitness>(id, kernel, directory, machine, options, hook);
  else
    party = std::make_unique<PeerNode>(kernel, directory, key, machine, options, hook);
  ServeOptions serving{
      .self = id, .epoch = kEpoch, .nodes = {1, 2, 3}, .channel = channel_options()};
  if (!options.nodes[0].witnesses.empty()) serving.nodes.push_back(kWitness);
  serve(*party, directory, key, serving, [] { return false; });
}

struct Measured {
  double per_s = 0;
  Latency::Distribution loaded{};  // of whole requests, while many are under way
  Latency::Distribution alone{};   // of requests of one command, one at a time
};

Measured measure(unsigned batch, bool audited, const TrustedArguments& arguments, StepsBar& bar) {
  const Directory directory(make_parties());
  const PeerReviewOptions options = tree(batch, audited);
  std::list<ForkedPeer> parties;
  for (PartyId id = 1; id <= (audited ? kWitness : kNodes); ++id)
    parties.emplace_back([&, id](const ForkedPeer::Tell&) { run_party(id, directory, options); });

  const SigningKey key = key_of(kClient);
  Client client(directory, key,
                {.self = kClient,
                 .epoch = kEpoch,
                 .nodes = {1},
                 .quorum = 1,
                 .window = kWindow,
                 .channel = channel_options()});
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

TrustedResult measure_peer_review(const TrustedArguments& arguments) {
  TrustedResult result;
  std::vector<unsigned> batches(kBatches.begin(), kBatches.end());
  if (arguments.batch != 0) batches = {arguments.batch};
  StepsBar bar("peer-review", 2 * batches.size());
  if (!arguments.json)
    std::printf(
        " PeerReview: a root, two children, a witness of all three and a client, each a process; "
        "%zu commands under one signature\n",
        arguments.request);
  for (const unsigned batch : batches) {
    for (const bool audited : {false, true}) {
      const Measured measured = measure(batch, audited, arguments, bar);
      result.results.push_back({{"batch", batch},
                                {"audited", audited},
                                {"nodes", kNodes},
                                {"commands_per_request", arguments.request},
                                {"requests_under_way", kWindow},
                                {"command_per_s", measured.per_s},
                                {"request_us", to_json(measured.loaded)},
                                {"single_command_us", to_json(measured.alone)}});
      // Published with and without audit: each beside its own kind.
      const std::string name =
          "peer_review" + std::string(audited ? "_audited" : "") + "_batch" + std::to_string(batch);
      result.ratios[name + "_per_s"] = measured.per_s;
      if (!arguments.json)
        std::printf(" batch %-3u %s %10.1f thousand commands a second\n", batch,
                    audited ? "audited all the time" : "not audited         ",
                    measured.per_s * 1e-3);
      for (const Published& system : kPublished) {
        const double published = audited ? system.audited : system.plain;
        const double ratio = measured.per_s * 1e-3 / published;
        if (std::string(system.name) == "TNIC") result.ratios[name + "_vs_tnic"] = ratio;
        if (std::string(system.name) == "SSL-lib") result.ratios[name + "_vs_ssl_lib"] = ratio;
        if (!arguments.json)
          std::printf("   %-12s %10.1f published (figure 12, batch 1), %6.2f times that\n",
                      system.name, published, ratio);
      }
      if (arguments.json) continue;
      std::printf("   true latency, microseconds:\n");
      print_latency(("a request, " + std::to_string(kWindow) + " under way").c_str(),
                    measured.loaded);
      print_latency("one command alone", measured.alone);
    }
  }
  return result;
}

}  // namespace leat::bench
