// leat-attestd: the attestation kernel as a process of its own.
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "attestd/provisioned.h"
#include "attestd/sandbox.h"
#include "attestd/server.h"
#include "base/random.h"
#include "base/settings.h"
#include "base/system_error.h"
#include "cli/allowed.h"
#include "leat/error.h"
#include "leat/version.h"
#include "trusted/remote/kernel_process.h"

namespace leat::attestd {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

constexpr const char* kFooter =
    R"(With a key that the other side's leat-attestd, or the other side itself, has too:
  (umask 077; openssl rand -hex 32 >key)
  useradd --system leat-attestd   # no other program may run as this user
  install -d -o leat-attestd /run/leat-attestd
  leat-attestd --socket /run/leat-attestd/socket --key-file key --user leat-attestd --mode 666 --allow alice
and for the programs, instead of attest_key_file:
  leat://host:port?transport=attested+ring&attest_kernel=/run/leat-attestd/socket
If the daemon runs as another user than leat-attestd, root or the program's, attest_kernel_user names it.
So that they believe this daemon only, attest_kernel_key is what this prints: leat-attestd --key-file key --show-key

With sessions that a vendor provisions (docs/remote_attestation.md):
  leat-provision device FOLDER --vendor-key FILE -- /usr/bin/leat-attestd --controller --socket PATH

LEAT_SPIN_US, or under a controller spin_us in /etc/leat.conf, says how long it spins before it sleeps.
Exit code: 0 after SIGTERM or SIGINT; 1 if it cannot serve; 2 for wrong arguments. See leat-attestd(8).)";

struct Arguments {
  ServerOptions server;
  std::string key_file;
  bool controller = false;
  bool show_key = false;
  std::string user;
  std::vector<std::string> allow;
};

std::optional<Arguments> parse(int argc, char** argv, int& exit_code) {
  Arguments arguments;
  ServerOptions& server = arguments.server;
  server.path = "/run/leat-attestd/socket";
  std::string mode = "600";
  CLI::App app("Holds keys and counters of attested sessions, and attests for its clients.",
               "leat-attestd");
  app.footer(kFooter);
  app.set_version_flag("-v,--version", std::string("leat ") + leat::version());
  app.add_option("--socket", server.path, "Path of the socket at which clients connect")
      ->capture_default_str()
      ->type_name("PATH");
  app.add_option("--mode", mode, "The socket's permissions, which decide which users may connect")
      ->capture_default_str()
      ->check(cli::one_of({"600", "660", "666"}))
      ->type_name("600|660|666");
  auto* keys = app.add_option_group("keys");
  keys->add_option(
          "--key-file", arguments.key_file,
          "File with the key of connections' sessions: one line of 64 to 128 hexadecimal digits")
      ->type_name("FILE");
  auto* controller = keys->add_flag(
      "--controller", arguments.controller,
      "Take sessions from the controller that started this program, on descriptor 3");
  keys->require_option(1, 2);
  app.add_flag("--show-key", arguments.show_key,
               "Print the public key by which clients know a daemon with that --key-file "
               "(attest_kernel_key), and end")
      ->excludes(controller);
  app.add_option("--user", arguments.user, "The user to become, if root starts this program")
      ->type_name("NAME");
  app.add_option("--allow", arguments.allow,
                 "A user that may be a client, and the sessions that it may use (default: every "
                 "user whom the socket admits); may be repeated")
      ->type_name("USER[:SESSION,...]");
  app.add_option("--max-clients", server.max_clients, "Most clients at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  app.add_option("--max-clients-per-user", server.max_clients_per_user,
                 "Most clients of one user at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  app.add_option("--max-payload", server.shape.max_payload_bytes,
                 "The largest payload attested, in bytes; each client has memory for eight")
      ->capture_default_str()
      ->check(CLI::Range(std::uint32_t{64}, trusted::detail::RingShape::kMostPayloadBytes));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? 0 : kUsage;
    return std::nullopt;
  }
  server.mode = static_cast<unsigned>(std::stoul(mode, nullptr, 8));
  server.spin = leat::detail::resolve_settings({}, {}).spin;
  return arguments;
}

// SIGTERM and SIGINT as something to read.
leat::detail::Fd stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // fails only for another first argument
  return leat::detail::Fd(
      leat::detail::check(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd"));
}

// Root's own rights are more than it needs.
void check_user(const std::string& user) {
  if (geteuid() == 0 && user.empty())
    throw Error(ErrorCode::kInvalidArgument, "started by root without --user",
                "Name a user that does nothing else, such as leat-attestd, or give --user root.");
}

// By which clients know this daemon.
std::string public_key(const Holdings& holdings) {
  const auto introduction = holdings.introduce({});
  return introduction ? leat::detail::hex(introduction->key) : "none";
}

void show_key(const std::string& key_file) {
  Holdings holdings;
  holdings.take_key_file(key_file);
  std::printf("%s\n", public_key(holdings).c_str());
}

void run(const Arguments& arguments) {
  if (arguments.show_key) return show_key(arguments.key_file);
  check_user(arguments.user);
  const leat::detail::Fd stop = stop_signals();
  AccessRules rules;
  for (const std::string& rule : arguments.allow) rules.add(rule);
  const bool locked = lock_memory();

  Holdings holdings;
  if (!arguments.key_file.empty()) holdings.take_key_file(arguments.key_file);
  std::optional<trusted::remote::KernelEnd> controller;
  if (arguments.controller) {
    controller.emplace(leat::detail::Fd(trusted::remote::kKernelDescriptor));
    take_sessions(*controller, holdings);
  }
  Server server(arguments.server, holdings, rules);
  if (!arguments.user.empty()) become(arguments.user);
  hide_memory();
  std::printf("leat-attestd: serving at %s, device %u, key %s%s\n", arguments.server.path.c_str(),
              holdings.device() == nullptr ? 0 : holdings.device()->device(),
              public_key(holdings).c_str(), locked ? "" : ", memory not locked: ulimit -l");
  const bool filtered = restrict_system_calls();
  std::printf("leat-attestd: system calls %s\n", filtered ? "restricted" : "not restricted");
  std::fflush(stdout);
  if (controller) controller->enabled();
  server.run(stop.get());
}

}  // namespace
}  // namespace leat::attestd

int main(int argc, char** argv) {
  try {
    leat::attestd::start_hidden(argv);
    leat::attestd::hide_memory();
    int exit_code = 0;
    const auto arguments = leat::attestd::parse(argc, argv, exit_code);
    if (!arguments) return exit_code;
    leat::attestd::run(*arguments);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "leat-attestd: %s\n", error.what());
    return leat::attestd::kFailed;
  }
}
