// A counter that liars cannot make lie: replicas and clients, each a process. The leader orders
// what the clients ask, the others check it by doing it themselves, and a client believes what f+1
// replicas say alike. With --lie one replica counts wrong, and is found out.
#include <leat/leat.h>
#include <leat/trusted/client.h>
#include <leat/trusted/counter.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "leads_twice.h"
#include "system.h"
#include "wrong_counter.h"

namespace {

using namespace leat::trusted;

struct Arguments {
  Part part;
  unsigned replicas = 3;
  unsigned batch = 8;
  unsigned clients = 2;
  unsigned requests = 10;
  unsigned commands = 100;
  std::string lie = "nobody";
};

BftOptions options_of(const System& system, const Arguments& arguments) {
  BftOptions options{.replicas = system.all(PartyRole::kNode), .batch = arguments.batch};
  options.faults = static_cast<unsigned>(options.replicas.size() - 1) / 2;
  return options;
}

int run_replica(PartyId id, const System& system, const Arguments& arguments) {
  const BftOptions options = options_of(system, arguments);
  const bool leads = id == options.replicas.front();
  const bool lies = (arguments.lie == "leader" && leads) ||
                    (arguments.lie == "follower" && id == options.replicas.back());
  const SigningKey key = system.key_of(id);
  const MachineFactory make_machine = [lies]() -> std::unique_ptr<StateMachine> {
    if (lies) return std::make_unique<WrongCounter>();
    return std::make_unique<CounterMachine>();
  };
  // Where a view change would begin, if the leader is accused.
  const FaultHook hook = [id](const Fault& fault) {
    std::printf("replica %u accuses %u: %s%s\n", id, fault.accused,
                std::string(to_string(fault.kind)).c_str(),
                fault.evidence.empty() ? "" : ", with evidence");
    std::fflush(stdout);
  };
  std::vector<std::unique_ptr<AttestationKernel>> kernels;
  const auto make_replica = [&] {
    kernels.push_back(system.kernels_of(id)({arguments.part.epoch, options.replicas}));
    return std::make_unique<BftReplica>(*kernels.back(), system.directory(), key, make_machine,
                                        options, hook);
  };
  std::unique_ptr<Participant> party;
  if (arguments.lie == "twice" && leads)
    party = std::make_unique<LeadsTwice>(make_replica(), make_replica());
  else
    party = make_replica();
  serve(*party, system.directory(), key,
        {.self = id,
         .epoch = arguments.part.epoch,
         .nodes = options.replicas,
         .channel = channel_options()},
        [] { return false; });
  return 0;
}

int run_client(PartyId id, const System& system, const Arguments& arguments) {
  const BftOptions options = options_of(system, arguments);
  const SigningKey key = system.key_of(id);
  Client client(system.directory(), key,
                {.self = id,
                 .epoch = arguments.part.epoch,
                 .nodes = options.replicas,
                 .quorum = options.faults + 1,
                 .timeout = std::chrono::seconds(5),
                 .channel = channel_options()});
  const std::vector<Bytes> commands(arguments.commands, CounterMachine::add(1));
  std::uint64_t value = 0;
  for (unsigned i = 0; i < arguments.requests; ++i) client.submit(commands);
  for (unsigned i = 0; i < arguments.requests; ++i)
    value = CounterMachine::value_of(client.receive().outputs.back()).value_or(0);
  std::printf("client %u: its last addition made it %llu\n", id,
              static_cast<unsigned long long>(value));
  std::fflush(stdout);
  return 0;
}

int run(const Arguments& arguments) {
  const System system = arguments.part.system(
      {{PartyRole::kNode, arguments.replicas}, {PartyRole::kClient, arguments.clients}});
  return arguments.part.run(system, [&](PartyId id) {
    return system.role_of(id) == PartyRole::kClient ? run_client(id, system, arguments)
                                                    : run_replica(id, system, arguments);
  });
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "A counter kept by replicas of which fewer than half may lie, and its clients, each a "
      "process.",
      "counter");
  app.add_option("--replicas", arguments.replicas, "Number of replicas: 2f+1, of which f may lie")
      ->check(CLI::Range(1, 9))
      ->capture_default_str();
  app.add_option("--batch", arguments.batch, "Commands in one attested record")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--clients", arguments.clients, "Number of clients")
      ->check(CLI::Range(1, 20))
      ->capture_default_str();
  app.add_option("--requests", arguments.requests, "Requests of each client")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--commands", arguments.commands, "Additions of 1 in each request")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option(
         "--lie", arguments.lie,
         "The replica that counts wrong: nobody, leader, follower; or twice: the leader tells "
         "one half of\nall replicas and clients another history than the other half")
      ->check(CLI::IsMember({"nobody", "leader", "follower", "twice"}))
      ->capture_default_str();
  add_part(app, arguments.part);
  app.footer(
      "Exit code: 0 if all clients got answers that enough replicas gave, 1 if not, 2 for wrong "
      "arguments.");
  return run_program(app, argc, argv, [&] { return run(arguments); });
}
