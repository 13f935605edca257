// The first step of provisioned.sh: makes the parties of a system in a folder, each with a key of
// its own, and the list of all, which is public.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "system.h"

int main(int argc, char** argv) {
  CLI::App app(
      "Makes the parties of a system in a folder, each with a folder and a key of its own.",
      "make_parties");
  std::string folder;
  unsigned nodes = 3, spares = 0, services = 0, witnesses = 0, clients = 2;
  const CLI::Range few(0, 20);
  app.add_option("folder", folder, "An empty folder")->required();
  app.add_option("--nodes", nodes, "Nodes, from number 1 on")->check(few)->capture_default_str();
  app.add_option("--spares", spares, "Nodes that may replace others")->check(few);
  app.add_option("--services", services, "Configuration services")->check(CLI::Range(0, 1));
  app.add_option("--witnesses", witnesses, "Witnesses of PeerReview")->check(few);
  app.add_option("--clients", clients, "Clients, from number 101 on")
      ->check(few)
      ->capture_default_str();
  return run_program(app, argc, argv, [&] {
    System::make(folder, {{PartyRole::kNode, nodes},
                          {PartyRole::kSpare, spares},
                          {PartyRole::kService, services},
                          {PartyRole::kWitness, witnesses},
                          {PartyRole::kClient, clients}});
    return 0;
  });
}
