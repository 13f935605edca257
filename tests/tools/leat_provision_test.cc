// leat-provision, run as users would: the walk-through of docs/remote_attestation.md, and mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "leat/attest/isolated_kernel.h"
#include "leat/channel.h"
#include "leat/listener.h"
#include "support/errors.h"
#include "support/free_port.h"
#include "support/program.h"
#include "support/scale.h"
#include "support/scratch.h"

namespace leat::detail {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kProgram = "src/tools/leat-provision";

ProgramResult provision(const std::vector<std::string>& arguments, const std::string& folder) {
  return run_program(kProgram, arguments, folder);
}

// What stands in the blocks of the page that are marked as shell, as one script.
std::string walk_through() {
  std::istringstream page(read_file(LEAT_SOURCE_FOLDER "/docs/remote_attestation.md"));
  std::string script = "set -e\n";
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line == "```sh" || line == "```") {
      inside = line == "```sh";
    } else if (inside) {
      script += line + "\n";
    }
  }
  return script;
}

// "session 1 pair 0011..." of each line that a kernel of that device printed.
std::vector<std::string> sessions_of(const std::string& out, unsigned device) {
  const std::string start = "kernel of device " + std::to_string(device) + ": ";
  std::vector<std::string> sessions;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(start)) sessions.push_back(line.substr(start.size()));
  }
  return sessions;
}

// The script with the programs of this build.
std::string walk_through_with(const std::string& kernel) {
  return "export PATH=" LEAT_BUILD_FOLDER "/src/tools:$PATH KERNEL=" + kernel +
         " ADDRESS1=127.0.0.1:" + std::to_string(free_port()) +
         " ADDRESS2=127.0.0.1:" + std::to_string(free_port()) + "\n" + walk_through();
}

// Ends the kernels that the walk-through leaves running.
struct KernelsOf {
  explicit KernelsOf(const std::string& printed) : out(printed) {}
  KernelsOf(const KernelsOf&) = delete;
  KernelsOf& operator=(const KernelsOf&) = delete;
  ~KernelsOf() {
    const std::string before = "kernel is process ";
    for (std::size_t at = out.find(before); at != std::string::npos; at = out.find(before, at + 1))
      kill(std::stoi(out.substr(at + before.size())), SIGTERM);
  }
  const std::string& out;
};

// The public key of the device's replies, as the vendor's side printed it.
std::string reply_digits_of(const std::string& printed, unsigned device) {
  const std::string before = "signs replies with ";
  const std::size_t line = printed.find("device " + std::to_string(device) + " at ");
  return printed.substr(printed.find(before, line) + before.size(), 64);
}
trusted::PublicKey reply_key_of(const std::string& printed, unsigned device) {
  const std::string digits = reply_digits_of(printed, device);
  trusted::PublicKey key{};
  for (std::size_t i = 0; i < key.size(); ++i)
    key[i] = static_cast<std::byte>(std::stoul(digits.substr(2 * i, 2), nullptr, 16));
  return key;
}

TEST(LeatProvision, WalkThroughEndsWithTheSameSessionsOnBothSides) {
  const ScratchFolder folder;
  const std::string script = folder.write("walk.sh", walk_through_with(LEAT_REMOTE_KERNEL));
  const ProgramResult result = run_program("/bin/bash", {script}, folder.path());
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("device 1 waits for its vendor"), HasSubstr("epoch 1:"),
                    HasSubstr("2 sessions, enabled"), HasSubstr("trusts device 2 no more")));
  const auto first = sessions_of(result.out, 1);
  ASSERT_EQ(first.size(), 2U) << result.out;
  EXPECT_THAT(first[0], AllOf(HasSubstr("session 1 pair"), HasSubstr("of 2 members")));
  EXPECT_THAT(first[1], HasSubstr("session 2 group"));
  EXPECT_EQ(first, sessions_of(result.out, 2));
  EXPECT_THAT(result.err, AllOf(HasSubstr("certificate revoked"), HasSubstr("device 2 at")));
}

TEST(LeatProvision, WalkThroughLeavesTwoKernelsThatAttestForEachOther) {
  const ScratchFolder folder;
  const std::string script =
      folder.write("walk.sh", walk_through_with(LEAT_BUILD_FOLDER "/src/attestd/leat-attestd"));
  const ProgramResult result = run_program("/bin/bash", {script}, folder.path());
  const KernelsOf kernels(result.out);
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;

  const auto options = [&](unsigned device) {
    Options made;
    made.device = "shm";
    made.transport = "attested+ring";
    made.attest_kernel = folder.path() + "/kernel" + std::to_string(device);
    made.attest_kernel_key = reply_digits_of(result.out, device);
    made.attest_session = 1;
    made.timeout = hang_limit();
    return made;
  };
  Listener listener("127.0.0.1:0", options(1));
  std::thread sends([&] {
    Channel channel = Channel::connect(listener.address(), options(2));
    channel.send("from device 2");
    channel.shutdown();
    EXPECT_FALSE(channel.receive());
  });
  Channel channel = listener.accept();
  EXPECT_EQ(channel.receive().text(), "from device 2");
  channel.shutdown();
  EXPECT_FALSE(channel.receive());
  sends.join();
  // The group session, by the kernels themselves.
  const auto kernel = [&](unsigned device, unsigned with_key_of) {
    return std::make_unique<trusted::IsolatedKernel>(*options(device).attest_kernel,
                                                     std::chrono::microseconds(50), "leat-attestd",
                                                     *options(with_key_of).attest_kernel_key);
  };
  const auto first_kernel = kernel(1, 1), second_kernel = kernel(2, 2);
  trusted::IsolatedKernel &first = *first_kernel, &second = *second_kernel;
  leat::detail::expect_error(ErrorCode::kAuthentication, [&] { kernel(1, 2); });
  EXPECT_EQ(first.device(), 1U);
  EXPECT_EQ(second.session(2).value_or(trusted::Session{}).role, trusted::Role::kGroupReceiver);
  EXPECT_FALSE(first.session(3));
  const std::string text = "to all";
  const auto payload = std::as_bytes(std::span(text));
  trusted::Proof proof;
  EXPECT_EQ(second.attest({.session = 2}, payload, proof), trusted::Verdict::kRole);
  ASSERT_EQ(first.attest({.session = 2}, payload, proof), trusted::Verdict::kOk);
  std::vector<std::byte> record(proof.header.begin(), proof.header.end());
  record.insert(record.end(), payload.begin(), payload.end());
  record.insert(record.end(), proof.mac.begin(), proof.mac.end());
  EXPECT_EQ(second.verify(record, trusted::Kind::kSend), trusted::Verdict::kOk);
  EXPECT_EQ(second.verify(record, trusted::Kind::kSend), trusted::Verdict::kCounter);
  EXPECT_EQ(second.verify_stateless(record, trusted::Kind::kSend), trusted::Verdict::kOk);
  EXPECT_EQ(second.counters(2, 0).value_or(trusted::Counters{}).next_received, 1U);
  // Signed for a client, who has no key of that session (TNIC, appendix C.1).
  trusted::Signature signature{};
  ASSERT_EQ(second.sign(record, trusted::Kind::kSend, signature), trusted::Verdict::kOk);
  const trusted::PublicKey second_key = reply_key_of(result.out, 2);
  EXPECT_TRUE(trusted::is_signed(second_key, record, signature));
  EXPECT_FALSE(trusted::is_signed(reply_key_of(result.out, 1), record, signature));
  record.back() ^= std::byte{1};
  EXPECT_FALSE(trusted::is_signed(second_key, record, signature));
  EXPECT_EQ(second.sign(record, trusted::Kind::kSend, signature), trusted::Verdict::kMac);
}

TEST(LeatProvision, JsonOfARunAndEpochsThatRise) {
  const ScratchFolder folder;
  const auto ok = [&](const std::vector<std::string>& arguments) {
    const ProgramResult result = provision(arguments, folder.path());
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  ok({"ca", "init", "ca"});
  ok({"ca", "device", "ca", "device", "--device", "1"});
  ok({"vendor", "init", "vendor"});
  ok({"ca", "firmware", "device", "--vendor-key", "vendor/vendor.pub", "--firmware", "3"});
  ok({"vendor", "allow", "vendor", "--firmware", "3", "--only"});
  for (const unsigned epoch : {1, 2}) {
    Program device(
        kProgram,
        {"device", "device", "--vendor-key", "vendor/vendor.pub", "--", LEAT_REMOTE_KERNEL},
        folder.path());
    const std::string address = "127.0.0.1" + device.wait_for("vendor at 127.0.0.1");
    const nlohmann::json plan = {
        {"devices", {{{"device", 1}, {"address", address}}}},
        {"sessions", {{{"id", 4}, {"kind", "log"}, {"algorithm", "hmac-sha384"}, {"sender", 1}}}},
        {"kernel", {{"id", 1}, {"version", 1}, {"program", LEAT_REMOTE_KERNEL}}}};
    folder.write("plan.json", plan.dump());
    const auto said = nlohmann::json::parse(
        ok({"vendor", "run", "vendor", "--ca", "ca", "--plan", "plan.json", "--json"}));
    EXPECT_EQ(said.at("epoch"), epoch);
    EXPECT_EQ(said.at("devices").at(0).at("firmware"), 3);
    EXPECT_EQ(said.at("devices").at(0).at("reply_key").get<std::string>().size(), 64U);
    EXPECT_EQ(device.wait().exit_code, 0);
  }
  // Firmware that the device has had a newer one than (R8), where the vendor does not decide.
  ok({"ca", "firmware", "device", "--vendor-key", "vendor/vendor.pub", "--firmware", "2"});
  const ProgramResult old =
      provision({"device", "device", "--vendor-key", "vendor/vendor.pub", "--", LEAT_REMOTE_KERNEL},
                folder.path());
  EXPECT_EQ(old.exit_code, 1);
  EXPECT_THAT(old.err, HasSubstr("firmware version 2 is refused: this device has had 3"));
}

TEST(LeatProvision, MistakesAreNamed) {
  const ScratchFolder folder;
  EXPECT_EQ(provision({"ca", "init", "ca"}, folder.path()).exit_code, 0);
  const auto fails = [&](const std::vector<std::string>& arguments, int code, const char* says) {
    const ProgramResult result = provision(arguments, folder.path());
    EXPECT_EQ(result.exit_code, code) << result.out;
    EXPECT_THAT(result.err + result.out, HasSubstr(says));
  };
  fails({"ca", "init", "ca"}, 1, "'ca' exists already");
  fails({"ca", "device", "ca", "device", "--device", "0"}, 2, "--device");
  fails({"ca", "device", "nowhere", "device", "--device", "1"}, 1, "ca.key");
  fails({"vendor"}, 2, "subcommand");
  fails({}, 2, "subcommand");
  folder.write("open.key", read_file(folder.path() + "/ca/ca.key"), 0644);
  fails({"ca", "revoke", "ca", "--certificate", "ca/ca.crt"}, 1, "names no device");
  EXPECT_EQ(rename((folder.path() + "/open.key").c_str(), (folder.path() + "/ca/ca.key").c_str()),
            0);
  fails({"ca", "device", "ca", "device", "--device", "1"}, 1, "chmod 600");
  const ProgramResult help = provision({"--help"}, folder.path());
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("vendor run"), HasSubstr("Exit code")));
}

}  // namespace
}  // namespace leat::detail
