#include "trusted/load.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "leat/listener.h"
#include "process_usage.h"

namespace leat::bench {
namespace {

using trusted::Answer;
using trusted::Bytes;
using trusted::Party;
using trusted::PartyId;
using trusted::Role;

// At most: requests of one command, one after the other.
constexpr std::uint64_t kAlone = 1000;

nlohmann::ordered_json to_json(const Latency::Distribution& latency) {
  return {{"p50", latency.typical_us},
          {"p90", latency.p90_us},
          {"p99", latency.p99_us},
          {"p999", latency.p999_us},
          {"max", latency.max_us}};
}

void print_line(const std::string& what, const Latency::Distribution& latency) {
  std::printf("   %-44s median %9.1f, 90 %% %9.1f, 99 %% %9.1f, most %9.1f\n", what.c_str(),
              latency.typical_us, latency.p90_us, latency.p99_us, latency.max_us);
}

}  // namespace

std::vector<unsigned> batches_of(const TrustedArguments& arguments) {
  if (arguments.batch != 0) return {arguments.batch};
  return {1, 8, 16};
}

trusted::SigningKey key_of(PartyId id) {
  std::array<std::byte, 32> seed{};
  seed[0] = static_cast<std::byte>(id);
  return trusted::SigningKey(seed);
}

std::vector<Party> make_parties(PartyId nodes) {
  std::vector<Party> parties{{kClient, key_of(kClient).public_key(), {}}};
  std::vector<leat::Listener> listeners;  // all at once, so that their ports differ
  for (PartyId id = 1; id <= nodes; ++id)
    parties.push_back(
        {id, key_of(id).public_key(), listeners.emplace_back("127.0.0.1:0").address()});
  return parties;
}

leat::Options channel_options() {
  leat::Options options;
  options.device = "shm";
  options.spin = std::chrono::microseconds(0);
  options.connect_retry = true;
  return options;
}

KernelHomes::Provision groups(PartyId senders, std::uint32_t first_session) {
  return [=](std::uint32_t id, const KernelHomes::Take& take) {
    for (PartyId sender = 1; sender <= senders; ++sender) {
      const std::vector<std::byte> key(trusted::kMinKeyBytes, static_cast<std::byte>(sender));
      const bool own = sender == id;
      take({.id = first_session + sender - 1,
            .role = own ? Role::kGroupSender : Role::kGroupReceiver,
            .peer = own ? 0 : sender,
            .key = key});
    }
  };
}

LoadResult measure_load(trusted::Client& client, const Bytes& command,
                        const std::function<void(const Answer&)>& check,
                        const TrustedArguments& arguments, StepsBar& bar) {
  const TickClock clock;
  const std::vector<Bytes> commands(arguments.request, command);
  for (std::size_t i = 0; i < kRequestsUnderWay; ++i) {  // warm
    client.submit(commands);
    check(client.receive());
  }

  LoadResult load;
  const std::size_t requests =
      std::max<std::size_t>(4 * kRequestsUnderWay, arguments.commands / arguments.request);
  const std::size_t turns = requests + kRequestsUnderWay;
  std::vector<std::uint64_t> sent(requests);
  std::vector<double> times;
  const FamilyUsage before = family_usage();
  const std::uint64_t start = clock.now();
  for (std::size_t i = 0; i < turns; ++i) {
    if (i >= kRequestsUnderWay) {
      check(client.receive());
      times.push_back(clock.microseconds(clock.now() - sent[i - kRequestsUnderWay]));
      if (i % 16 == 0) bar.update(static_cast<double>(i) / static_cast<double>(turns));
    }
    if (i < requests) {
      sent[i] = clock.now();
      client.submit(commands);
    }
  }
  const double seconds = clock.microseconds(clock.now() - start) * 1e-6;
  const FamilyUsage after = family_usage();
  const auto commands_done = static_cast<double>(requests * arguments.request);
  load.per_s = commands_done / seconds;
  load.cpu_us = (after.cpu_seconds - before.cpu_seconds) * 1e6 / commands_done;
  load.switches = static_cast<double>(after.switches - before.switches) / commands_done;
  load.loaded = distribution_of(std::move(times));

  const std::vector<Bytes> one(1, command);
  times.assign(std::min<std::uint64_t>(kAlone, arguments.commands), 0);
  for (double& time : times) {
    const std::uint64_t begin = clock.now();
    client.submit(one);
    check(client.receive());
    time = clock.microseconds(clock.now() - begin);
  }
  load.alone = distribution_of(std::move(times));
  bar.step_done();
  return load;
}

void add_load(nlohmann::ordered_json& row, const LoadResult& load,
              const TrustedArguments& arguments) {
  row["commands_per_request"] = arguments.request;
  row["requests_under_way"] = kRequestsUnderWay;
  row["command_per_s"] = load.per_s;
  row["cpu_us_per_command"] = load.cpu_us;
  row["switches_per_command"] = load.switches;
  row["request_us"] = to_json(load.loaded);
  row["single_command_us"] = to_json(load.alone);
}

void print_load(const LoadResult& load) {
  std::printf("   of all processes %.2f us of processor time and %.3f switches a command\n",
              load.cpu_us, load.switches);
  std::printf("   true latency, microseconds:\n");
  print_line("a request, " + std::to_string(kRequestsUnderWay) + " under way", load.loaded);
  print_line("one command alone", load.alone);
}

}  // namespace leat::bench
