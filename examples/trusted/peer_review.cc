// Nodes that answer for what they do: a root passes what a client asks to its children, and a
// witness replays everybody's log. Each is a process. With --lie one node counts wrong; that has
// its effect, and the witness exposes it to all by evidence that anybody can verify.
#include <leat/leat.h>
#include <leat/trusted/client.h>
#include <leat/trusted/counter.h>
#include <leat/trusted/peer_review.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "system.h"
#include "wrong_counter.h"

namespace {

using namespace leat::trusted;

struct Arguments {
  Part part;
  unsigned requests = 10;
  unsigned commands = 100;
  std::string lie = "nobody";
};

// The first node is the root, and all others are its children.
PeerReviewOptions tree_of(const System& system) {
  PeerReviewOptions options{.nodes = {}, .batch = 8};
  for (const PartyId id : system.all(PartyRole::kNode))
    options.nodes.push_back({id, options.nodes.empty() ? 0 : options.nodes.front().id,
                             system.all(PartyRole::kWitness)});
  return options;
}

int run_party(PartyId id, const System& system, const Arguments& arguments) {
  const PeerReviewOptions options = tree_of(system);
  const Directory& directory = system.directory();
  const std::vector<PartyId> nodes = system.all(PartyRole::kNode);
  const auto own_kernel = system.kernels_of(id)({arguments.part.epoch, nodes});
  AttestationKernel& kernel = *own_kernel;
  const SigningKey key = system.key_of(id);
  const bool witness = system.role_of(id) == PartyRole::kWitness;
  const bool lies = (arguments.lie == "root" && id == nodes.front()) ||
                    (arguments.lie == "child" && id == nodes.back());
  const MachineFactory right = [] { return std::make_unique<CounterMachine>(); };
  const MachineFactory wrong = [] { return std::make_unique<WrongCounter>(); };
  // A third party of its own: what is exposed is judged once more, from the evidence alone.
  const StandingHook hook = [&](const StandingChange& change) {
    if (change.standing == Standing::kExposed) {
      const auto fault = judge(kernel, directory, right, options, change.fault.evidence);
      std::printf("%s %u exposes node %u: %s; its evidence %s\n", witness ? "witness" : "node", id,
                  change.node, std::string(to_string(change.fault.kind)).c_str(),
                  fault ? "proves it" : "proves nothing");
    } else {
      std::printf("%u %s node %u\n", id,
                  change.standing == Standing::kSuspected ? "suspects" : "trusts again",
                  change.node);
    }
    std::fflush(stdout);
  };
  std::unique_ptr<Participant> party;
  if (witness)
    party = std::make_unique<PeerWitness>(id, kernel, directory, right, options, hook);
  else
    party = std::make_unique<PeerNode>(kernel, directory, key, lies ? wrong : right, options, hook);
  ServeOptions serving{
      .self = id, .epoch = arguments.part.epoch, .nodes = nodes, .channel = channel_options()};
  for (const PartyId its : system.all(PartyRole::kWitness)) serving.nodes.push_back(its);
  serve(*party, directory, key, serving, [] { return false; });
  return 0;
}

int run_client(PartyId id, const System& system, const Arguments& arguments) {
  const SigningKey key = system.key_of(id);
  Client client(system.directory(), key,
                {.self = id,
                 .epoch = arguments.part.epoch,
                 .nodes = {system.all(PartyRole::kNode).front()},
                 .quorum = 1,
                 .timeout = std::chrono::seconds(3),
                 .channel = channel_options()});
  const std::vector<Bytes> commands(arguments.commands, CounterMachine::add(1));
  std::uint64_t value = 0;
  try {
    for (unsigned i = 0; i < arguments.requests; ++i)
      value = CounterMachine::value_of(client.call(commands).back()).value_or(0);
  } catch (const leat::Error& error) {
    std::printf("client: %s\n", error.what());
  }
  std::printf("client: the root says that it counted to %llu\n",
              static_cast<unsigned long long>(value));
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // for the audits
  return 0;
}

int run(const Arguments& arguments) {
  const System system = arguments.part.system(
      {{PartyRole::kNode, 3}, {PartyRole::kWitness, 1}, {PartyRole::kClient, 1}});
  return arguments.part.run(system, [&](PartyId id) {
    return system.role_of(id) == PartyRole::kClient ? run_client(id, system, arguments)
                                                    : run_party(id, system, arguments);
  });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A root, two children and a witness that replays what they log, each a process.",
               "peer_review");
  Arguments arguments;
  app.add_option("--requests", arguments.requests, "Requests of the client")->capture_default_str();
  app.add_option("--commands", arguments.commands, "Additions of 1 in each request")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--lie", arguments.lie, "The node that counts wrong: nobody, root, child")
      ->check(CLI::IsMember({"nobody", "root", "child"}))
      ->capture_default_str();
  app.footer("Exit code: 0 if the client was answered, 1 if not, 2 for wrong arguments.");
  add_part(app, arguments.part);
  return run_program(app, argc, argv, [&] { return run(arguments); });
}
