// The parties of an example of a replicated system, what all know of each other, and what each
// keeps to itself: its signing key and its attestation kernels.
#pragma once

#include <leat/attest/identity.h>
#include <leat/options.h>
#include <leat/trusted/configuration.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

enum class PartyRole { kNode, kSpare, kService, kWitness, kClient };

class System {
 public:
  using PartyId = leat::trusted::PartyId;
  // Nodes have numbers from 1 on, then come the others, and clients from 101 on.
  using Roles = std::vector<std::pair<PartyRole, unsigned>>;

  // A demonstration within one program: all keys, those of the attestation sessions too, are known
  // to all who read this, and kernels are a part of their nodes' processes. So an attacker
  // that takes over a process has all of them. Addresses are of this machine and free now.
  static System made_up(const Roles& roles);
  // The system in a folder: each party reads its own folder in that, and `parties`, which is
  // public. Its kernels are leat-attestd daemons. Throws leat::Error kInvalidArgument, naming the
  // file.
  static System in(const std::string& folder);
  // Makes such a folder, without kernels: leat-provision adds those (provisioned.sh). Throws the
  // same, if one of the files is there already or cannot be written.
  static void make(const std::string& folder, const Roles& roles);

  const leat::trusted::Directory& directory() const { return *directory_; }
  std::vector<PartyId> all(PartyRole role) const;
  // Throws leat::Error kInvalidArgument if no party has that number.
  PartyRole role_of(PartyId id) const;
  leat::trusted::SigningKey key_of(PartyId id) const;
  // Where that party gets its attestors. It is a node, spare, service or witness.
  leat::trusted::KernelFactory kernels_of(PartyId id) const;

  // Runs `body`, whose result is the exit code, for each party in a process of its own, until all
  // clients have succeeded or one has failed. Returns the exit code.
  int run_all(const std::function<int(PartyId)>& body) const;

 private:
  struct Member {
    PartyRole role;
    leat::trusted::Party party;
  };
  System(std::string folder, std::map<PartyId, Member> members);

  std::string folder_;  // empty: made up
  std::map<PartyId, Member> members_;
  std::unique_ptr<leat::trusted::Directory> directory_;
};

// Which part of which system a program plays.
struct Part {
  std::string folder;  // empty: all parts of one that is made up
  System::PartyId party = 0;
  std::uint64_t epoch = 1;

  // The system, and in it this part or, without a folder, all parts.
  System system(const System::Roles& made_up) const {
    return folder.empty() ? System::made_up(made_up) : System::in(folder);
  }
  int run(const System& system, const std::function<int(System::PartyId)>& body) const {
    return folder.empty() ? system.run_all(body) : body(party);
  }
};

namespace CLI {
class App;
}
// Adds --system, --party and --epoch.
void add_part(CLI::App& app, Part& part);
// Parses the command line and runs `body`. Returns the exit code: that of `body`, 1 with a text for
// what it throws, 2 for wrong arguments.
int run_program(CLI::App& app, int argc, char** argv, const std::function<int()>& body);

leat::Options channel_options();
