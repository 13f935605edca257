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

#include "local_processes.h"
#include "parties.h"
#include "wrong_counter.h"

namespace {

using namespace leat::trusted;

struct Arguments {
  unsigned replicas = 3;
  unsigned batch = 8;
  unsigned clients = 2;
  unsigned requests = 10;
  unsigned commands = 100;
  std::string lie = "nobody";
};

int run_replica(PartyId id, const Directory& directory, const BftOptions& options, bool lies) {
  LocalKernel kernel(id, kEpoch);
  provision(kernel, options.replicas, options.first_session);
  const SigningKey key = key_of(id);
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
  BftReplica replica(kernel, directory, key, make_machine, options, hook);
  serve(replica, directory, key,
        {.self = id, .epoch = kEpoch, .nodes = options.replicas, .channel = channel_options()},
        [] { return false; });
  return 0;
}

int run_client(PartyId id, const Directory& directory, const BftOptions& options,
               const Arguments& arguments) {
  const SigningKey key = key_of(id);
  ClientOptions client_options{.self = id,
                               .epoch = kEpoch,
                               .nodes = options.replicas,
                               .quorum = options.faults + 1,
                               .timeout = std::chrono::seconds(5),
                               .channel = channel_options()};
  Client client(directory, key, client_options);
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
  BftOptions options{.faults = (arguments.replicas - 1) / 2, .batch = arguments.batch};
  for (PartyId id = 1; id <= arguments.replicas; ++id) options.replicas.push_back(id);
  const Directory directory(parties(arguments.replicas, arguments.clients));

  const PartyId liar = arguments.lie == "leader"     ? 1
                       : arguments.lie == "follower" ? arguments.replicas
                                                     : 0;
  LocalProcesses replicas, clients;
  for (const PartyId id : options.replicas)
    replicas.start(
        guarded("counter", [&, id] { return run_replica(id, directory, options, id == liar); }));
  for (PartyId id = kFirstClient; id < kFirstClient + arguments.clients; ++id)
    clients.start(
        guarded("counter", [&, id] { return run_client(id, directory, options, arguments); }));
  return clients.wait() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "A counter kept by replicas of which fewer than half may lie, and its clients, each a "
      "process of this\nmachine.",
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
  app.add_option("--lie", arguments.lie, "The replica that counts wrong: nobody, leader, follower")
      ->check(CLI::IsMember({"nobody", "leader", "follower"}))
      ->capture_default_str();
  app.footer(
      "Exit code: 0 if all clients got answers that enough replicas gave, 1 if not, 2 for wrong "
      "arguments.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "counter: %s\n", error.what());
    return 1;
  }
}
