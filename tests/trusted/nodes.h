// Nodes of a trusted system as processes, correct ones and test doubles.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "leat/trusted/client.h"
#include "leat/trusted/participant.h"
#include "support/kernel_daemon.h"
#include "support/scratch.h"
#include "trusted/parties.h"
#include "trusted/parts/messages.h"

namespace leat::trusted {

// How often a test kills a node: LEAT_TEST_KILLS, such as 200; by default `usual`, which is few
// because each time needs a system of its own.
std::size_t kills(std::size_t usual);

// How long a test waits for what must come, which a correct node that is not starved has done by
// then, and how long a client waits for what must not come.
inline constexpr std::chrono::seconds kLong{30};
inline constexpr std::chrono::milliseconds kShort{700};

// What a node's hook told.
struct Report {
  PartyId by = 0;
  Fault fault;
};

// Where nodes have their kernels: each in its process, or with LEAT_TEST_KERNELS=daemons in a
// leat-attestd that is new each time when the node is started.
bool kernels_are_daemons();

// Makes what runs in a node's process, which gets the node's number and kernel and a hook that
// reports to the test. Starts processes, so make it while no other threads are.
class Nodes {
 public:
  using Make = std::function<std::unique_ptr<Participant>(PartyId id, AttestationKernel& kernel,
                                                          const SigningKey& key, FaultHook hook)>;

  explicit Nodes(std::size_t count);
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;
  ~Nodes();  // kills all

  const Directory& directory() const { return directory_; }
  std::vector<PartyId> ids() const;

  // Other nodes started from now on connect to that one by way of this address, over TCP.
  void put_in_front(PartyId id, const std::string& address) { in_front_[id] = address; }

  void start(PartyId id, const Make& make);
  void kill(PartyId id);
  // Kills a node at a random moment of the next 20 milliseconds.
  [[nodiscard]] std::jthread kill_soon(PartyId id, std::mt19937& random) const;
  pid_t process(PartyId id) const { return processes_.at(id); }

  // The next report of any node; no value if none comes within the time.
  std::optional<Report> report(std::chrono::milliseconds within);

  ClientOptions client_options(std::size_t quorum, PartyId self = kClient) const;
  Client connect(std::size_t quorum, PartyId self = kClient) const;
  // EXPECTs that a client which believes `quorum` nodes gets no answer to the commands.
  void expect_no_answer(std::size_t quorum, const std::vector<Bytes>& commands) const;

 private:
  [[noreturn]] void run(PartyId id, const Make& make);
  std::string socket_of(PartyId id) const { return sockets_.path() + "/" + std::to_string(id); }

  const std::size_t count_;
  const std::vector<Party> parties_;
  const Directory directory_;
  std::map<PartyId, std::string> in_front_;
  const SigningKey client_key_, other_key_;
  std::map<PartyId, pid_t> processes_;
  const leat::detail::ScratchFolder sockets_;
  std::map<PartyId, std::unique_ptr<remote::KernelDaemon>> daemons_;
  leat::detail::Fd reports_, reporter_;
};

}  // namespace leat::trusted
