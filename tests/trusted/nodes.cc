#include "trusted/nodes.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "leat/attest/isolated_kernel.h"
#include "support/scale.h"

namespace leat::trusted {
namespace {

constexpr std::size_t kMaxReportBytes = 160 * 1024;

leat::Options quiet_options() {
  leat::Options options;
  options.device = "shm";
  options.connect_timeout = std::chrono::seconds(20);
  options.handshake_timeout = std::chrono::seconds(20);
  return options;
}

void tell(int socket, PartyId by, const Fault& fault) {
  Bytes bytes(9 + fault.evidence.size());
  std::memcpy(bytes.data(), &by, 4);
  std::memcpy(bytes.data() + 4, &fault.accused, 4);
  bytes[8] = static_cast<std::byte>(fault.kind);
  if (!fault.evidence.empty())
    std::memcpy(bytes.data() + 9, fault.evidence.data(), fault.evidence.size());
  if (send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) std::perror("a report");
}

// The sessions of kernel_of().
remote::Secrets secrets_of(PartyId id, std::size_t nodes) {
  remote::Secrets secrets{.device = id, .epoch = kSystemEpoch, .sessions = {}, .reply_key = {}};
  const auto count = static_cast<std::uint32_t>(nodes);
  for (PartyId sender = 1; sender <= count; ++sender) {
    const auto key = session_key_of(sender);
    secrets.sessions.push_back(
        remote::group_session(kFirstSession + sender - 1, sender, count, {key.begin(), key.end()}));
  }
  return secrets;
}

}  // namespace

bool kernels_are_daemons() {
  const char* wish = std::getenv("LEAT_TEST_KERNELS");
  return wish != nullptr && std::string_view(wish) == "daemons";
}

std::size_t kills(std::size_t usual) {
  const char* wish = std::getenv("LEAT_TEST_KILLS");
  return wish != nullptr ? static_cast<std::size_t>(std::atoi(wish)) : leat::detail::scaled(usual);
}

Nodes::Nodes(std::size_t count)
    : count_(count),
      parties_(parties(count)),
      directory_(parties_),
      client_key_(key_of(kClient)),
      other_key_(key_of(kOtherClient)) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::runtime_error("no socket pair");
  reports_ = leat::detail::Fd(ends[0]);
  reporter_ = leat::detail::Fd(ends[1]);
}

Nodes::~Nodes() {
  while (!processes_.empty()) kill(processes_.begin()->first);
}

std::vector<PartyId> Nodes::ids() const {
  std::vector<PartyId> all;
  for (PartyId id = 1; id <= count_; ++id) all.push_back(id);
  return all;
}

void Nodes::start(PartyId id, const Make& make) {
  if (kernels_are_daemons()) {
    daemons_.erase(id);
    daemons_[id] = std::make_unique<remote::KernelDaemon>(secrets_of(id, count_), socket_of(id));
  }
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process < 0) throw std::runtime_error("cannot fork");
  if (process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    run(id, make);
  }
  processes_[id] = process;
}

void Nodes::run(PartyId id, const Make& make) {
  try {
    std::unique_ptr<AttestationKernel> kernel;
    if (kernels_are_daemons())
      kernel = std::make_unique<IsolatedKernel>(socket_of(id));
    else
      kernel = kernel_of(id, count_);
    const SigningKey key = key_of(id);
    const auto participant = make(
        id, *kernel, key, [this, id](const Fault& fault) { tell(reporter_.get(), id, fault); });
    auto seen = parties_;
    for (Party& party : seen)
      if (const auto front = in_front_.find(party.id); front != in_front_.end() && party.id != id)
        party.address = front->second;
    ServeOptions options{
        .self = id, .epoch = kSystemEpoch, .nodes = ids(), .channel = quiet_options()};
    if (!in_front_.empty()) {
      options.channel.device.reset();
      options.channel.transport = "tcp";
    }
    serve(*participant, Directory(seen), key, options, [] { return false; });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "node %u: %s\n", id, error.what());
  }
  _exit(1);
}

std::jthread Nodes::kill_soon(PartyId id, std::mt19937& random) const {
  return std::jthread([life = std::chrono::microseconds(random() % 20'000), node = process(id)] {
    std::this_thread::sleep_for(life);
    ::kill(node, SIGKILL);
  });
}

void Nodes::kill(PartyId id) {
  const auto process = processes_.extract(id);
  if (process.empty()) return;
  ::kill(process.mapped(), SIGKILL);
  waitpid(process.mapped(), nullptr, 0);
}

std::optional<Report> Nodes::report(std::chrono::milliseconds within) {
  pollfd news{reports_.get(), POLLIN, 0};
  if (poll(&news, 1, static_cast<int>(within.count())) != 1) return std::nullopt;
  Bytes bytes(kMaxReportBytes);
  const ssize_t got = recv(reports_.get(), bytes.data(), bytes.size(), 0);
  if (got < 9) return std::nullopt;
  Report report;
  std::memcpy(&report.by, bytes.data(), 4);
  std::memcpy(&report.fault.accused, bytes.data() + 4, 4);
  report.fault.kind = static_cast<FaultKind>(bytes[8]);
  report.fault.evidence.assign(bytes.begin() + 9, bytes.begin() + got);
  return report;
}

ClientOptions Nodes::client_options(std::size_t quorum, PartyId self) const {
  ClientOptions options{.self = self, .epoch = kSystemEpoch, .nodes = ids(), .quorum = quorum};
  options.channel = quiet_options();
  options.channel.connect_retry = true;
  return options;
}

Client Nodes::connect(std::size_t quorum, PartyId self) const {
  return {directory_, self == kClient ? client_key_ : other_key_, client_options(quorum, self)};
}

void Nodes::expect_no_answer(std::size_t quorum, const std::vector<Bytes>& commands) const {
  ClientOptions options = client_options(quorum);
  options.timeout = kShort;
  options.retry_after = std::chrono::milliseconds(200);
  Client client(directory_, client_key_, options);
  try {
    client.call(commands);
    ADD_FAILURE() << "an answer without a quorum";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout) << error.what();
  }
}

}  // namespace leat::trusted
