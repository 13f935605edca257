// A key-value store on a chain of nodes: each executes what the head orders, proves it to the next,
// and answers the client, which believes equal answers of all. With --lie one node stores something
// else, and is found out; with --spares a configuration service then replaces it.
#include <leat/leat.h>
#include <leat/trusted/chain.h>
#include <leat/trusted/client.h>
#include <leat/trusted/configuration.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "system.h"

namespace {

using namespace leat::trusted;

struct Arguments {
  Part part;
  unsigned nodes = 3;
  unsigned spares = 0;
  unsigned batch = 8;
  unsigned keys = 1000;
  unsigned lie = 0;
};

// Finds every key, with a value that nobody put.
class WrongStore final : public StateMachine {
 public:
  void execute(std::span<const std::byte> command, Bytes& output) override {
    store_.execute(command, output);
    if (output.size() > 1) output.back() ^= std::byte{1};
  }
  void keep() noexcept override { store_.keep(); }
  void undo() noexcept override { store_.undo(); }
  void save(Bytes& state) const override { store_.save(state); }
  bool load(std::span<const std::byte> state) override { return store_.load(state); }

 private:
  KeyValueMachine store_;
};

MachineFactory store(bool lies) {
  return [lies]() -> std::unique_ptr<StateMachine> {
    if (lies) return std::make_unique<WrongStore>();
    return std::make_unique<KeyValueMachine>();
  };
}

FaultHook accuse(const std::string& who) {
  return [who](const Fault& fault) {
    std::printf("%s accuses %u: %s%s\n", who.c_str(), fault.accused,
                std::string(to_string(fault.kind)).c_str(),
                fault.evidence.empty() ? "" : ", with evidence");
    std::fflush(stdout);
  };
}

// With a service in it, `chain` has the batch and nothing else that counts.
ConfigurationOptions options_of(const System& system, const Arguments& arguments) {
  ConfigurationOptions options{.pool = system.all(PartyRole::kNode),
                               .chain = {.batch = arguments.batch}};
  options.length = options.pool.size();
  options.liars = options.length - 1;
  options.chain.nodes = options.pool;
  for (const PartyId id : system.all(PartyRole::kSpare)) options.pool.push_back(id);
  for (const PartyId id : system.all(PartyRole::kService)) options.service = id;
  if (options.service != 0 && arguments.part.epoch != 1)
    throw leat::Error(
        leat::ErrorCode::kInvalidArgument,
        "with a configuration service, which counts epochs itself, there is no --epoch");
  return options;
}

int run_party(PartyId id, const System& system, const Arguments& arguments) {
  const ConfigurationOptions options = options_of(system, arguments);
  const SigningKey key = system.key_of(id);
  const MachineFactory make_machine = store(id == arguments.lie);
  const KernelFactory make_kernel = system.kernels_of(id);
  const FaultHook hook =
      accuse(id == options.service ? "the service" : "node " + std::to_string(id));
  ServeOptions serving{.self = id,
                       .epoch = arguments.part.epoch,
                       .nodes = options.pool,
                       .channel = channel_options()};
  std::unique_ptr<AttestationKernel> kernel;
  std::unique_ptr<Participant> party;
  if (options.service == 0) {
    kernel = make_kernel({arguments.part.epoch, options.chain.nodes});
    party = std::make_unique<ChainNode>(*kernel, system.directory(), key, make_machine,
                                        options.chain, hook);
  } else {
    serving.nodes.insert(serving.nodes.begin(), options.service);
    if (id == options.service) {
      const auto tell = [](const Configuration& configuration) {
        std::printf("epoch %llu: the chain is",
                    static_cast<unsigned long long>(configuration.epoch));
        for (const PartyId node : configuration.nodes) std::printf(" %u", node);
        std::printf("\n");
        std::fflush(stdout);
      };
      party = std::make_unique<ConfigurationService>(system.directory(), key, make_machine,
                                                     make_kernel, options, tell, hook);
    } else {
      party = std::make_unique<ChainMember>(id, system.directory(), key, make_machine, make_kernel,
                                            options, hook);
    }
  }
  serve(*party, system.directory(), key, serving, [] { return false; });
  return 0;
}

// Puts all keys, takes every second away, and gets them all.
int run_client(PartyId id, const System& system, const Arguments& arguments) {
  const ConfigurationOptions options = options_of(system, arguments);
  const SigningKey key = system.key_of(id);
  Client client(system.directory(), key,
                {.self = id,
                 .epoch = arguments.part.epoch,
                 .nodes = options.chain.nodes,
                 .quorum = options.length,
                 .timeout = std::chrono::seconds(5),
                 .service = options.service,
                 .channel = channel_options()});
  const auto name = [](unsigned i) { return "key " + std::to_string(i); };
  std::vector<Bytes> puts, erasures, gets;
  for (unsigned i = 0; i < arguments.keys; ++i) {
    puts.push_back(KeyValueMachine::put(name(i), "value " + std::to_string(i)));
    if (i % 2 == 1) erasures.push_back(KeyValueMachine::erase(name(i)));
    gets.push_back(KeyValueMachine::get(name(i)));
  }
  client.call(puts);
  client.call(erasures);
  unsigned found = 0;
  for (const Bytes& output : client.call(gets)) {
    const auto value = KeyValueMachine::value_of(output);
    if (value) ++found;
  }
  std::printf("client %u: put %u keys, erased %zu, found %u; all %zu nodes said the same\n", id,
              arguments.keys, erasures.size(), found, options.length);
  std::fflush(stdout);
  return 0;
}

int run(const Arguments& arguments) {
  const System system = arguments.part.system({{PartyRole::kNode, arguments.nodes},
                                               {PartyRole::kSpare, arguments.spares},
                                               {PartyRole::kService, arguments.spares > 0 ? 1 : 0},
                                               {PartyRole::kClient, 1}});
  return arguments.part.run(system, [&](PartyId id) {
    return system.role_of(id) == PartyRole::kClient ? run_client(id, system, arguments)
                                                    : run_party(id, system, arguments);
  });
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("A key-value store on chain replication, and its client, each a process.", "chain");
  app.add_option("--nodes", arguments.nodes, "Nodes of the chain; all but one may lie")
      ->check(CLI::Range(1, 9))
      ->capture_default_str();
  app.add_option("--spares", arguments.spares,
                 "Spare nodes; if any, a configuration service replaces nodes of the chain by them")
      ->check(CLI::Range(0, 9))
      ->capture_default_str();
  app.add_option("--batch", arguments.batch, "Commands in one attested record")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--keys", arguments.keys, "Keys that the client puts")
      ->check(CLI::Range(2, 4096))
      ->capture_default_str();
  app.add_option("--lie", arguments.lie, "The node that lies, 1 is the head; 0: none")
      ->capture_default_str();
  app.footer(
      "Exit code: 0 if all nodes answered the client alike, 1 if not, 2 for wrong arguments.");
  add_part(app, arguments.part);
  app.callback([&] {
    const unsigned nodes = arguments.nodes + arguments.spares;
    if (arguments.part.folder.empty() && arguments.lie > nodes)
      throw CLI::ValidationError("--lie", "there are " + std::to_string(nodes) + " nodes");
  });
  return run_program(app, argc, argv, [&] { return run(arguments); });
}
