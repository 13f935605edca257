// The examples that users copy from, run as they would: send_file above all, which quickstart.sh
// uses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <random>

#include "leat/leat.h"
#include "support/program.h"
#include "support/scratch.h"

namespace leat::detail {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kSendFile = "examples/send_file";

std::string random_text(std::size_t bytes) {
  std::mt19937_64 random(7);
  std::string text(bytes, '\0');
  for (char& letter : text) letter = static_cast<char>(random());
  return text;
}

// What stands behind "SHA-256 " up to the comma.
std::string digest_of(const std::string& output) {
  const std::size_t start = output.find("SHA-256 ");
  return start == std::string::npos ? "" : output.substr(start + 8, 64);
}

class SendFile : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  std::size_t files_in_folder() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()));
  }

  ScratchFolder folder_;
};

class SendFileOver : public SendFile, public testing::WithParamInterface<const char*> {};

TEST_P(SendFileOver, CopyIsEqualAndBothEndsTellTheSameDigest) {
  for (const std::size_t bytes : {0U, 1U, 5'000'003U}) {
    const std::string text = random_text(bytes);
    const std::string source = folder_.write("source", text);
    Program receiver(kSendFile, {"--listen", "--output", path("copy"), "--force"});
    const std::string address = receiver.wait_for("listening at ");
    const ProgramResult sent = run_program(kSendFile, {source, address + "?device=" + GetParam()});
    const ProgramResult received = receiver.wait();
    EXPECT_EQ(sent.exit_code, 0) << sent.err;
    EXPECT_EQ(received.exit_code, 0) << received.err;
    EXPECT_EQ(read_file(path("copy")), text);
    EXPECT_EQ(digest_of(sent.out).size(), 64);
    EXPECT_EQ(digest_of(sent.out), digest_of(received.out));
    EXPECT_THAT(sent.out, HasSubstr(std::string(" on ") + GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, SendFileOver, testing::Values("shm", "tcp"),
                         [](const auto& device) { return std::string(device.param); });

TEST_F(SendFile, KeepsTheSendersNameWithoutOutput) {
  const ScratchFolder there;
  const std::string source = folder_.write("name with spaces", "text");
  Program receiver(kSendFile, {"--listen"}, there.path());
  EXPECT_EQ(run_program(kSendFile, {source, receiver.wait_for("listening at ")}).exit_code, 0);
  EXPECT_EQ(receiver.wait().exit_code, 0);
  EXPECT_EQ(read_file(there.path() + "/name with spaces"), "text");
}

TEST_F(SendFile, RefusesToReplaceAFile) {
  const std::string there = folder_.write("copy", "precious");
  const ProgramResult result = run_program(kSendFile, {"--listen", "--output", there});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("--force"));
  EXPECT_EQ(read_file(there), "precious");
}

TEST_F(SendFile, RefusesNamesThatLeadOutOfTheFolder) {
  for (const char* name : {"../evil", "/evil", "..", ".", "", "a/b"}) {
    const std::string inner = path("inner");
    fs::create_directories(inner);
    Program receiver(kSendFile, {"--listen"}, inner);
    Channel channel = Channel::connect(receiver.wait_for("listening at "));
    channel.send(std::string("leat-send-file 1 3 ") + name);
    EXPECT_THAT(std::string(channel.receive().text()), HasSubstr("--output")) << name;
    channel.close();
    EXPECT_EQ(receiver.wait().exit_code, 1);
    EXPECT_TRUE(fs::is_empty(inner)) << name;
    EXPECT_EQ(files_in_folder(), 1) << name;
  }
}

TEST_F(SendFile, DamagedFileIsNotKept) {
  Program receiver(kSendFile, {"--listen", "--output", path("copy")});
  Channel channel = Channel::connect(receiver.wait_for("listening at "));
  channel.send("leat-send-file 1 3 name");
  channel.send("abc");
  channel.send(std::string(64, '0'));
  EXPECT_THAT(std::string(channel.receive().text()), HasSubstr("SHA-256 differs"));
  channel.close();
  EXPECT_EQ(receiver.wait().exit_code, 1);
  EXPECT_EQ(files_in_folder(), 0);
}

TEST_F(SendFile, HalfAFileIsNotKeptWhenTheSenderGoes) {
  Program receiver(kSendFile, {"--listen", "--output", path("copy")});
  {
    Channel channel = Channel::connect(receiver.wait_for("listening at "));
    channel.send("leat-send-file 1 1000 name");
    channel.send("abc");
    channel.flush();
  }
  EXPECT_EQ(receiver.wait().exit_code, 1);
  EXPECT_EQ(files_in_folder(), 0);
}

TEST_F(SendFile, PiecesThatOverrunTheSizeAreRefused) {
  Program receiver(kSendFile, {"--listen", "--output", path("copy")});
  Channel channel = Channel::connect(receiver.wait_for("listening at "));
  channel.send("leat-send-file 1 3 name");
  channel.send("abcd");
  EXPECT_THAT(std::string(channel.receive().text()), HasSubstr("another size"));
  channel.close();
  EXPECT_EQ(receiver.wait().exit_code, 1);
}

TEST_F(SendFile, SenderHearsWhyTheReceiverGaveUp) {
  const std::string source = folder_.write("source", random_text(3'000'000));
  Program receiver(kSendFile, {"--listen", "--output", path("no/such/folder/copy")});
  const ProgramResult sent = run_program(kSendFile, {source, receiver.wait_for("listening at ")});
  EXPECT_EQ(sent.exit_code, 1);
  EXPECT_THAT(sent.err, HasSubstr("the receiver gave up: cannot create"));
  EXPECT_EQ(receiver.wait().exit_code, 1);
}

// Stands for a full disk: a limit of the receiver's process that write(2) meets in mid-file.
TEST_F(SendFile, DiskThatTakesNoMoreIsSaidAtBothEnds) {
  const std::string source = folder_.write("source", random_text(40'000'000));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 16 << 20;
  const ScratchVariable regions("LEAT_CHUNKED_REGION_BYTES", "64K");  // shared memory is files too
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);                 // the receiver inherits both
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Program receiver(kSendFile, {"--listen", "--output", path("copy")});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  const std::string address = receiver.wait_for("listening at ") + "?transport=chunked";
  const ProgramResult sent = run_program(kSendFile, {source, address});
  EXPECT_EQ(sent.exit_code, 1);
  EXPECT_THAT(sent.err, HasSubstr("the receiver gave up: cannot write"));
  const ProgramResult received = receiver.wait();
  EXPECT_EQ(received.exit_code, 1);
  EXPECT_THAT(received.err, HasSubstr("cannot write"));
  EXPECT_EQ(files_in_folder(), 1);  // the source
}

TEST_F(SendFile, WrongArgumentsExitWithTwoAndTeach) {
  const std::vector<std::string> cases[] = {
      {}, {"file"}, {"--force", "a", "b"}, {"--listen", "x:1", "y"}, {"--nosuch"}};
  for (const auto& words : cases) {
    const ProgramResult result = run_program(kSendFile, words);
    EXPECT_EQ(result.exit_code, 2) << testing::PrintToString(words);
    EXPECT_THAT(result.err, HasSubstr("--help"));
  }
  EXPECT_THAT(run_program(kSendFile, {"--help"}).out, HasSubstr("Examples"));
}

TEST_F(SendFile, MissingFileAndMissingReceiverAreNamed) {
  const ProgramResult missing = run_program(kSendFile, {path("nosuch"), "127.0.0.1:1"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("nosuch"));
  const ProgramResult refused =
      run_program(kSendFile, {folder_.write("source", "text"), "127.0.0.1:1"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("127.0.0.1:1"));
}

TEST(Examples, PingPongFindsItsPeer) {
  Program listener("examples/ping_pong", {});
  const std::string command = listener.wait_for("run in another terminal: ");
  const std::string address = command.substr(command.find(' ') + 1);
  const ProgramResult result = run_program("examples/ping_pong", {address});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("half a round trip: "));
  EXPECT_EQ(listener.wait().exit_code, 0);
}

TEST(Examples, EchoClientInCGetsBackWhatItSent) {
  Program server("examples/echo_server", {"127.0.0.1:0"});
  const std::string address = server.wait_for("listening at ");
  for (const char* text : {"hello", "again"}) {
    const ProgramResult result = run_program("examples/echo_client", {address, text});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, std::string(text) + "\n");
  }
}

// One file, over the kernel's TCP and over leat.
TEST(Examples, TcpEchoIsLeatsByNames) {
  const ScratchVariable level("LEAT_LOG_LEVEL", "info");
  for (const std::string program : {"examples/tcp_echo", "examples/leat_echo"}) {
    Program server(program, {"0"});
    const std::string port = server.wait_for("listening at port ");
    const ProgramResult asked = run_program(program, {port, "hello"});
    EXPECT_EQ(asked.exit_code, 0) << asked.err;
    EXPECT_EQ(asked.out, "hello\n");
    EXPECT_EQ(server.wait().exit_code, 0);
    const bool by_leat = asked.err.find("ring on shm") != std::string::npos;
    EXPECT_EQ(by_leat, program == "examples/leat_echo") << asked.err;
  }
}

}  // namespace
}  // namespace leat::detail
