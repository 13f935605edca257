#include "system.h"

#include <fcntl.h>
#include <leat/attest/attestation.h>
#include <leat/error.h>
#include <leat/trusted/provisioned.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>

#include "local_processes.h"

using leat::Error;
using leat::ErrorCode;
using leat::trusted::Directory;
using leat::trusted::PartyId;
using leat::trusted::SigningKey;

namespace {

constexpr PartyId kFirstClient = 101;
constexpr std::array<std::pair<PartyRole, const char*>, 5> kRoleNames{
    {{PartyRole::kNode, "node"},
     {PartyRole::kSpare, "spare"},
     {PartyRole::kService, "service"},
     {PartyRole::kWitness, "witness"},
     {PartyRole::kClient, "client"}}};

using Seed = std::array<std::byte, 32>;

Seed seed_from(PartyId id) {
  Seed seed{};
  seed[0] = static_cast<std::byte>(id);
  return seed;
}

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, file + ": " + why,
              "examples/trusted/provisioned.sh makes the folder of a system.");
}

std::string hex(const Seed& bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(byte));
    text += digits;
  }
  return text;
}

std::optional<Seed> from_hex(const std::string& text) {
  Seed bytes;
  if (text.size() != 2 * bytes.size() ||
      text.find_first_not_of("0123456789abcdef") != std::string::npos)
    return std::nullopt;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  return bytes;
}

void write_new(const std::string& path, const std::string& text, mode_t mode) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file < 0) refuse(path, "cannot be made");
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (close(file) != 0 || !written) refuse(path, "cannot be written");
}

// Calls `add` with the number and role of each party.
template <typename Add>
void number(const System::Roles& roles, Add&& add) {
  PartyId other = 1, client = kFirstClient;
  for (const auto& [role, count] : roles)
    for (unsigned i = 0; i < count; ++i) add(role == PartyRole::kClient ? client++ : other++, role);
}

// Of those that are no clients, in the order of their numbers.
std::vector<std::string> addresses_for(const System::Roles& roles) {
  std::size_t count = 0;
  number(roles, [&](PartyId, PartyRole role) { count += role == PartyRole::kClient ? 0 : 1; });
  return free_local_addresses(count);
}

// One group session for each of them: it alone sends there, all others receive.
std::unique_ptr<leat::trusted::AttestationKernel> local_kernel(
    PartyId self, const leat::trusted::Configuration& configuration) {
  using leat::trusted::Role;
  auto kernel = std::make_unique<leat::trusted::LocalKernel>(self, configuration.epoch);
  for (const PartyId sender : configuration.nodes) {
    const std::vector<std::byte> key(leat::trusted::kMinKeyBytes, static_cast<std::byte>(sender));
    const bool own = sender == self;
    kernel->provision({.id = sender,
                       .role = own ? Role::kGroupSender : Role::kGroupReceiver,
                       .peer = own ? 0 : sender,
                       .key = key});
  }
  kernel->enable();
  return kernel;
}

}  // namespace

System::System(std::string folder, std::map<PartyId, Member> members)
    : folder_(std::move(folder)), members_(std::move(members)) {
  std::vector<leat::trusted::Party> parties;
  for (const auto& [id, member] : members_) parties.push_back(member.party);
  directory_ = std::make_unique<Directory>(parties);
}

System System::made_up(const Roles& roles) {
  std::map<PartyId, Member> members;
  auto address = addresses_for(roles);
  number(roles, [&](PartyId id, PartyRole role) {
    const bool client = role == PartyRole::kClient;
    members[id] = {role,
                   {id, SigningKey(seed_from(id)).public_key(), client ? "" : address[id - 1]}};
  });
  return {{}, std::move(members)};
}

// A line for each party: number, role, public key, and the address or "-".
System System::in(const std::string& folder) {
  const std::string path = folder + "/parties";
  std::ifstream file(path);
  if (!file) refuse(path, "cannot be read");
  std::map<PartyId, Member> members;
  unsigned count = 0;
  for (std::string line; std::getline(file, line);) {
    ++count;
    std::istringstream words(line);
    PartyId id = 0;
    std::string role, key, address, more;
    words >> id >> role >> key >> address;
    const auto named = std::find_if(kRoleNames.begin(), kRoleNames.end(),
                                    [&](const auto& one) { return one.second == role; });
    const auto public_key = from_hex(key);
    if (!words || words >> more || named == kRoleNames.end() || !public_key ||
        !members.emplace(id, Member{named->first, {id, *public_key, address == "-" ? "" : address}})
             .second)
      refuse(path, "line " + std::to_string(count) + " is of no party");
  }
  System system(folder, std::move(members));
  if (system.all(PartyRole::kNode).empty()) refuse(path, "has no node");
  return system;
}

void System::make(const std::string& folder, const Roles& roles) {
  auto address = addresses_for(roles);
  std::string parties;
  number(roles, [&](PartyId id, PartyRole role) {
    const std::string own = folder + "/" + std::to_string(id);
    if (mkdir(own.c_str(), 0700) != 0) refuse(own, "is there already, or cannot be made");
    Seed seed;
    if (getrandom(seed.data(), seed.size(), 0) != static_cast<ssize_t>(seed.size()))
      refuse(own, "has no random numbers for a key");
    write_new(own + "/key", hex(seed) + "\n", 0600);
    const auto named = std::find_if(kRoleNames.begin(), kRoleNames.end(),
                                    [&](const auto& one) { return one.first == role; });
    parties += std::to_string(id) + " " + named->second + " " + hex(SigningKey(seed).public_key()) +
               " " + (role == PartyRole::kClient ? "-" : address[id - 1]) + "\n";
  });
  write_new(folder + "/parties", parties, 0644);
}

std::vector<PartyId> System::all(PartyRole role) const {
  std::vector<PartyId> ids;
  for (const auto& [id, member] : members_)
    if (member.role == role) ids.push_back(id);
  return ids;
}

PartyRole System::role_of(PartyId id) const {
  const auto member = members_.find(id);
  if (member == members_.end()) refuse(folder_, "has no party " + std::to_string(id));
  return member->second.role;
}

SigningKey System::key_of(PartyId id) const {
  if (folder_.empty()) return SigningKey(seed_from(id));
  const std::string path = folder_ + "/" + std::to_string(id) + "/key";
  struct stat status {};
  std::ifstream file(path);
  std::string text;
  if (!std::getline(file, text) || stat(path.c_str(), &status) != 0) refuse(path, "cannot be read");
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    refuse(path, "is a secret that other users can read (chmod 600 it)");
  const auto seed = from_hex(text);
  if (!seed) refuse(path, "has no key");
  return SigningKey(*seed);
}

leat::trusted::KernelFactory System::kernels_of(PartyId id) const {
  if (!folder_.empty())
    return leat::trusted::provisioned_kernels(
        {.self = id, .folder = folder_ + "/" + std::to_string(id)});
  return [id](const leat::trusted::Configuration& its) { return local_kernel(id, its); };
}

int System::run_all(const std::function<int(PartyId)>& body) const {
  LocalProcesses servers, clients;
  // The clients last.
  for (const auto& [id, member] : members_)
    (member.role == PartyRole::kClient ? clients : servers).start([&body, party = id] {
      try {
        return body(party);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "party %u: %s\n", party, error.what());
        return 1;
      }
    });
  return clients.wait() ? 0 : 1;
}

void add_part(CLI::App& app, Part& part) {
  auto* folder = app.add_option("--system", part.folder,
                                "Play one part of the system in that folder, which "
                                "provisioned.sh made; default: all\nparts of one that is made up, "
                                "whose secrets are none");
  auto* party = app.add_option("--party", part.party, "The number of that part")->needs(folder);
  folder->needs(party);
  app.add_option("--epoch", part.epoch,
                 "Of the attestation kernels. Each serves once: a system that is started again "
                 "takes the next one")
      ->capture_default_str()
      ->needs(folder);
}

int run_program(CLI::App& app, int argc, char** argv, const std::function<int()>& body) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), error.what());
    return 1;
  }
}

leat::Options channel_options() {
  leat::Options options;
  options.spin = std::chrono::microseconds(0);  // more processes than cores: sleep at once
  options.connect_retry = true;                 // the nodes start at the same time
  return options;
}
