// Programs of several network namespaces, mount namespaces and users meet in a folder
// (leat-run --meet), and see what they see over TCP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "support/program.h"
#include "support/scale.h"
#include "support/scratch.h"

namespace leat::detail {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kLeatRun = LEAT_BUILD_FOLDER "/src/tools/leat-run";
constexpr const char* kApart = LEAT_BUILD_FOLDER "/tests/sockets_program";
constexpr const char* kIsCarried = "carried through shared memory";
constexpr const char* kPort = "7001";
constexpr const char* kServer = "10.213.0.1";

ProgramResult shell(const std::string& command) { return run_program("/bin/sh", {"-ec", command}); }

// Two network namespaces, joined by a cable; the second has a way to the first by a router if there
// is one.
class Network {
 public:
  explicit Network(bool router = false) {
    static int count = 0;
    const std::string id = std::to_string(getpid()) + "x" + std::to_string(count++);
    server_ = "leat" + id + "s";
    client_ = "leat" + id + "c";
    router_name_ = "leat" + id + "r";
    std::string commands = "ip netns add " + server_ + "; ip netns add " + client_ + ";";
    if (!router) {
      commands += cable(server_, kServer, client_, "10.213.0.2");
    } else {
      commands += "ip netns add " + router_name_ + ";" +
                  cable(server_, kServer, router_name_, "10.213.0.2") +
                  cable(client_, "10.214.0.1", router_name_, "10.214.0.2") + "ip -n " + server_ +
                  " route add default via 10.213.0.2; ip -n " + client_ +
                  " route add default via 10.214.0.2; ip netns exec " + router_name_ +
                  " sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'";
    }
    made_ = shell(commands);
  }
  ~Network() {
    for (const std::string& name : {server_, client_, router_name_})
      shell("ip netns delete " + name + " 2>/dev/null || true");
  }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  bool good() const { return made_.exit_code == 0; }
  std::string why() const { return "no network namespaces here: " + made_.err; }
  const std::string& server() const { return server_; }
  const std::string& client() const { return client_; }

 private:
  // Interfaces are named as the other end, so that a namespace may have two.
  std::string cable(const std::string& a, const std::string& at_a, const std::string& b,
                    const std::string& at_b) const {
    const std::string in_a = "to" + b.substr(b.size() - 1);
    const std::string in_b = "to" + a.substr(a.size() - 1);
    std::string text = "ip link add " + in_a + " netns " + a + " type veth peer name " + in_b +
                       " netns " + b + ";";
    for (const auto& [name, device, address] :
         {std::array{a, in_a, at_a}, std::array{b, in_b, at_b}}) {
      text += "ip -n " + name + " addr add " + address + "/24 dev " + device + "; ip -n " + name +
              " link set " + device + " up; ip -n " + name + " link set lo up;";
    }
    return text;
  }

  std::string server_;
  std::string client_;
  std::string router_name_;
  ProgramResult made_;
};

// How a side is started.
struct Side {
  std::string network;
  std::string user;         // empty: as the test
  std::string folder;       // --meet; empty: without
  bool leat = true;         // under leat-run
  std::string groups = {};  // further ones
  std::string before = {};  // a command of the shell in a mount namespace of its own
  Arguments within = {};    // a program that starts the side in further namespaces
};

Arguments command_of(const Side& side, const Arguments& program) {
  Arguments words = {"netns", "exec", side.network};
  if (!side.before.empty()) {
    words =
        words + Arguments{"unshare", "--mount", "sh", "-ec", side.before + "; exec \"$@\"", "sh"};
  }
  if (!side.user.empty()) {
    const std::string groups = side.groups.empty() ? "--clear-groups" : "--groups=" + side.groups;
    words = words + Arguments{"setpriv", "--reuid=" + side.user, "--regid=" + side.user, groups};
  }
  words = words + side.within;
  if (side.leat) words = words + Arguments{kLeatRun, "--all", "--log", "info"};
  if (side.leat && !side.folder.empty()) words = words + Arguments{"--meet", side.folder};
  return words + program;
}

std::string find_ip() {
  for (const char* path : {"/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip"})
    if (std::filesystem::exists(path)) return path;
  return "/sbin/ip";
}

// What a client sees of a server, and what both log.
struct Seen {
  ProgramResult client;
  ProgramResult server;
  bool carried() const {
    return client.err.find(kIsCarried) != std::string::npos &&
           server.err.find(kIsCarried) != std::string::npos;
  }
  bool carried_by_one() const {
    return client.err.find(kIsCarried) != std::string::npos ||
           server.err.find(kIsCarried) != std::string::npos;
  }
};

std::unique_ptr<Program> start_server(const Side& side, const char* host = "0.0.0.0") {
  auto server =
      std::make_unique<Program>(find_ip(), command_of(side, {kApart, "serve", host, kPort}));
  server->wait_for("serving");
  return server;
}

ProgramResult ask(const Side& side, const char* host = kServer) {
  return run_program(find_ip(), command_of(side, {kApart, "ask", host, kPort}));
}

Seen meet(const Side& server_side, const Side& client_side) {
  const auto server = start_server(server_side);
  Seen seen;
  seen.client = ask(client_side);
  if (seen.client.exit_code == 0) server->wait_for("served 3145728");
  server->kill();
  seen.server = server->wait();
  return seen;
}

class MeetingFolder : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root makes network namespaces";
    network_ = std::make_unique<Network>();
    if (!network_->good()) GTEST_SKIP() << network_->why();
    chmod(scratch_.path().c_str(), 0755);
    folder_ = scratch_.path() + "/meet";
    std::filesystem::create_directory(folder_);
    chmod(folder_.c_str(), 01777);
    const Side plain{network_->client(), {}, {}, false};
    const auto server = start_server({network_->server(), {}, {}, false});
    tcp_ = ask(plain).out;
    ASSERT_THAT(tcp_, HasSubstr("all of it: 1"));
  }

  Side server(const std::string& user = {}) const { return {network_->server(), user, folder_}; }
  Side client(const std::string& user = {}) const { return {network_->client(), user, folder_}; }
  void allow(const std::string& policy, unsigned mode = 0644) const {
    scratch_.write("meet/policy", policy, mode);
    chmod((folder_ + "/policy").c_str(), mode);
  }
  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      all.insert(entry.path().filename());
    return all;
  }
  // Other users must be able to run what was built.
  static bool users_can_run() {
    return run_program("/usr/bin/setpriv", {"--reuid=1001", "--regid=1001", "--clear-groups",
                                            kLeatRun, kApart, "half_close"})
               .exit_code == 0;
  }
  void expect_carried(const Seen& seen) const {
    EXPECT_TRUE(seen.carried()) << seen.client.err << seen.server.err;
    EXPECT_EQ(seen.client.out, tcp_);
  }
  void expect_tcp(const Seen& seen) const {
    EXPECT_FALSE(seen.carried_by_one()) << seen.client.err << seen.server.err;
    EXPECT_EQ(seen.client.out, tcp_);
  }

  const ScratchFolder scratch_;
  std::unique_ptr<Network> network_;
  std::string folder_;
  std::string tcp_;  // what the client prints over TCP
};

TEST_F(MeetingFolder, JoinsTwoNetworkNamespaces) { expect_carried(meet(server(), client())); }

TEST_F(MeetingFolder, IsUsedOnlyWhereBothNameIt) {
  const Side without_server{network_->server(), {}, {}};
  const Side without_client{network_->client(), {}, {}};
  expect_tcp(meet(without_server, without_client));
  expect_tcp(meet(server(), without_client));
  expect_tcp(meet(without_server, client()));
  Side elsewhere = client();
  elsewhere.folder = scratch_.path();
  expect_tcp(meet(server(), elsewhere));
  Side plain = client();
  plain.leat = false;
  expect_tcp(meet(server(), plain));
}

TEST_F(MeetingFolder, IsFoundUnderAnotherPathInAMountNamespace) {
  const std::string other = scratch_.path() + "/other";
  std::filesystem::create_directory(other);
  Side moved = client();
  moved.folder = other;
  moved.before = "mount --bind " + folder_ + " " + other;
  if (shell("unshare --mount sh -ec '" + moved.before + "'").exit_code != 0)
    GTEST_SKIP() << "no mount namespaces here";
  expect_carried(meet(server(), moved));
}

TEST_F(MeetingFolder, JoinsPidNamespaces) {
  const Arguments apart = {"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"};
  if (run_program("/usr/bin/env", apart + Arguments{"true"}).exit_code != 0)
    GTEST_SKIP() << "no PID namespaces here";
  Side to = server();
  Side from = client();
  to.within = from.within = apart;
  expect_carried(meet(to, from));
}

TEST_F(MeetingFolder, AUserNamespaceThatMapsTheUserIsJoined) {
  Side from = client();
  from.within = {"unshare", "--user", "--map-root-user"};
  if (run_program("/usr/bin/env", from.within + Arguments{"true"}).exit_code != 0)
    GTEST_SKIP() << "no user namespaces here";
  expect_carried(meet(server(), from));
  from.within = {"unshare", "--user"};
  const Seen unmapped = meet(server(), from);
  expect_tcp(unmapped);
  EXPECT_THAT(unmapped.client.err, HasSubstr("(this user namespace does not map its user)"));
}

TEST_F(MeetingFolder, CarriesWithinOneNetworkNamespaceToo) {
  Side beside = client();
  beside.network = network_->server();
  expect_carried(meet(server(), beside));
  const auto at_loopback = start_server(server(), "127.0.0.1");
  const ProgramResult asked = ask(beside, "127.0.0.1");
  EXPECT_THAT(asked.err, HasSubstr(kIsCarried));
  EXPECT_EQ(asked.out, tcp_);
}

TEST_F(MeetingFolder, LoopbackOfAnotherNamespaceIsAnotherAddress) {
  const auto met = start_server(server(), "127.0.0.1");
  const auto own = start_server({network_->client(), {}, scratch_.path()}, "127.0.0.1");
  const ProgramResult asked = ask(client(), "127.0.0.1");
  EXPECT_THAT(asked.err, Not(HasSubstr(kIsCarried)));
  EXPECT_EQ(asked.out, tcp_);
}

TEST_F(MeetingFolder, ThePolicySaysWhichUsersMeet) {
  if (!users_can_run()) GTEST_SKIP() << "another user cannot run leat-run here";
  expect_carried(meet(server("1001"), client("1001")));
  const Seen none = meet(server("1001"), client("1002"));
  expect_tcp(none);
  EXPECT_THAT(none.client.err, HasSubstr("(it belongs to another user)"));
  expect_tcp(meet(server("1001"), client()));  // root is a user, and no more
  allow("allow user:1002 user:1001 7001\n");
  expect_carried(meet(server("1001"), client("1002")));
  const Seen refused = meet(server("1001"), client("1003"));
  expect_tcp(refused);
  EXPECT_THAT(refused.client.err, HasSubstr("(the folder's policy does not allow it)"));
  allow("allow user:1002 user:1001 7002\n");
  expect_tcp(meet(server("1001"), client("1002")));
  allow("allow group:3000 group:1001 *\n");
  Side member = client("1002");
  expect_tcp(meet(server("1001"), member));
  member.groups = "2999,3000";
  expect_carried(meet(server("1001"), member));
}

TEST_F(MeetingFolder, AWrongPolicyLeavesAllWithTcpAndSaysSo) {
  allow("allow * * *\nallow everybody\n");
  const Seen unreadable = meet(server(), client());
  expect_tcp(unreadable);
  EXPECT_THAT(unreadable.client.err, HasSubstr("policy line 2 cannot be read"));
  allow("allow * * *\n", 0666);
  const Seen writable = meet(server(), client());
  expect_tcp(writable);
  EXPECT_THAT(writable.client.err, HasSubstr("policy can be written by others than its owner"));
  allow("allow * * *\n");
  expect_carried(meet(server(), client()));
}

TEST_F(MeetingFolder, ARouterBetweenLeavesItToTcp) {
  const Network far(true);
  if (!far.good()) GTEST_SKIP() << far.why();
  Side from = client();
  from.network = far.client();
  Side to = server();
  to.network = far.server();
  const Seen seen = meet(to, from);
  expect_tcp(seen);
  EXPECT_THAT(seen.client.err, HasSubstr("(a router lies between)"));
}

TEST_F(MeetingFolder, ACableThatCutsTheMarksLeavesItToTcp) {
  for (const char* bytes : {"1000", "1100", "1205"}) {
    const std::string command = "ip -n " + network_->client() + " link set tos mtu " + bytes +
                                "; ip -n " + network_->server() + " link set toc mtu " + bytes;
    ASSERT_EQ(shell(command).exit_code, 0);
    expect_tcp(meet(server(), client()));
  }
}

TEST_F(MeetingFolder, AListenerThatWasKilledLeavesAPlaceThatIsRemoved) {
  expect_carried(meet(server(), client()));
  const std::set<std::string> first = names();
  ASSERT_GE(first.size(), 3U) << "a socket, and links for loopback and the cable";
  const auto left = [&] {
    const std::set<std::string> now = names();
    return std::count_if(first.begin(), first.end(),
                         [&](const std::string& name) { return now.count(name) != 0; });
  };
  // Others remove them once they are old enough to be dead for certain.
  const Deadline deadline = hang_deadline();
  do {
    expect_carried(meet(server(), client()));
  } while (left() > 0 && std::chrono::steady_clock::now() < deadline);
  EXPECT_EQ(left(), 0);
}

// A stranger may put names into the folder, and knock at sockets there.
TEST_F(MeetingFolder, StrangersInTheFolderAreNotHeard) {
  if (!users_can_run()) GTEST_SKIP() << "another user cannot run leat-run here";
  const auto victim = start_server(server("1001"));
  std::string socket;
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    if (entry.is_socket()) socket = entry.path().filename();
  ASSERT_NE(socket, "");
  // A name that leads to another's socket, as if it were at the address of the client's own.
  const std::string lie = folder_ + "/0ad50002." + socket;
  std::filesystem::create_symlink(socket, lie);
  ASSERT_EQ(lchown(lie.c_str(), 1002, 1002), 0);
  const auto plain = start_server({network_->client(), {}, {}, false});
  const ProgramResult misled = ask({network_->client(), "1001", folder_}, "10.213.0.2");
  EXPECT_THAT(misled.err, Not(HasSubstr(kIsCarried)));
  EXPECT_EQ(misled.out, tcp_);
  // Strangers who come to the place and say nothing.
  std::vector<std::unique_ptr<Program>> knocking;
  constexpr const char* kKnock =
      "import socket,sys,time\nall=[]\nfor _ in range(50):\n s=socket.socket(socket.AF_UNIX,"
      "socket.SOCK_SEQPACKET)\n s.connect(sys.argv[1])\n all.append(s)\nprint('knocking',"
      "flush=True)\ntime.sleep(1000)\n";
  if (std::filesystem::exists("/usr/bin/python3")) {
    knocking.push_back(std::make_unique<Program>(
        "/usr/bin/setpriv", Arguments{"--reuid=1002", "--regid=1002", "--clear-groups",
                                      "/usr/bin/python3", "-c", kKnock, folder_ + "/" + socket}));
    knocking.back()->wait_for("knocking");
  }
  const ProgramResult asked = ask(client("1001"));
  EXPECT_THAT(asked.err, HasSubstr(kIsCarried));
  EXPECT_EQ(asked.out, tcp_);
}

// All that it shares is the memory of one connection.
TEST_F(MeetingFolder, NonsenseInSharedMemoryHarmsItsOwnConnectionOnly) {
  if (!users_can_run()) GTEST_SKIP() << "another user cannot run leat-run here";
  allow("allow * user:1001 7001\n");
  const auto victim = start_server(server("1001"));
  for (int i = 0; i < 10; ++i) {
    const ProgramResult spoilt =
        run_program(find_ip(), command_of(client("1002"), {kApart, "spoil", kServer, kPort}));
    EXPECT_EQ(spoilt.out, "spoiling\n") << spoilt.err;
  }
  const ProgramResult asked = ask(client("1003"));
  EXPECT_THAT(asked.err, HasSubstr(kIsCarried));
  EXPECT_EQ(asked.out, tcp_);
  victim->kill();
  EXPECT_EQ(victim->wait().exit_code, 128 + SIGKILL) << "it lived until then";
}

TEST_F(MeetingFolder, AFolderThatCannotBeUsedLeavesItAsWithoutOne) {
  const std::string deep = folder_ + "/" + std::string(100, 'x');
  std::filesystem::create_directory(deep);
  Side from = client();
  Side to = server();
  from.folder = to.folder = deep;
  const Seen seen = meet(to, from);
  expect_tcp(seen);
  EXPECT_THAT(seen.server.err, HasSubstr("cannot be used to meet: its path is too long"));
  from.network = to.network;
  expect_carried(meet(to, from));
}

TEST(LeatRunMeet, TakesAFolderOnly) {
  const ProgramResult wrong = run_program(kLeatRun, {"--meet", "/no/such/folder", "true"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--meet /no/such/folder: must be a folder"));
  const ScratchFolder folder;
  const ProgramResult shown = run_program(
      kLeatRun, {"--meet", ".", "/bin/sh", "-c", "echo $LEAT_PRELOAD_MEET"}, folder.path());
  EXPECT_EQ(shown.out, std::filesystem::canonical(folder.path()).string() + "\n");
}

}  // namespace
}  // namespace leat::detail
