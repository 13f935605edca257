// The program secure_training as a user runs it, on small made-up digits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <leat/listener.h>

#include <array>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "support/program.h"
#include "support/scratch.h"

namespace leat::detail {
namespace {

constexpr const char* kSecureTraining = "examples/secure_training/secure_training";
// 12 pixels, of which the three of a digit's class are bright.
std::string made_up_digits() {
  constexpr int kCount = 1000;
  std::string text = "digits 1 " + std::to_string(kCount) + " 12 4\n";
  std::mt19937 random(3);
  for (int i = 0; i < kCount; ++i) {
    const auto label = static_cast<int>(random() % 4);
    for (int pixel = 0; pixel < 12; ++pixel)
      text +=
          static_cast<char>(static_cast<unsigned>(pixel / 3 == label ? 170 : 0) + random() % 80);
    text += static_cast<char>(label);
  }
  return text;
}

class SecureTraining : public testing::Test {
 protected:
  SecureTraining() : digits_(folder_.path() + "/digits.bin") { write(made_up_digits()); }

  void write(const std::string& text) const { std::ofstream(digits_, std::ios::binary) << text; }
  Arguments with_digits() const { return {"--digits", digits_, "--seed", "5"}; }
  // The same for all processes.
  static Arguments tiny(const std::string& transport, const std::string& parties = "2",
                        const std::string& epochs = "3") {
    return Arguments{"--transport", transport, "--parties", parties, "--epochs", epochs, "--json"} +
           small();
  }
  static Arguments small(const std::string& widths = "12,16,16,4",
                         const std::string& samples = "800") {
    return {"--widths", widths, "--samples", samples, "--batch", "32"};
  }
  nlohmann::json run_local(const Arguments& arguments) const {
    const ProgramResult result =
        run_program(kSecureTraining, Arguments{"--local"} + with_digits() + arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, false);
  }

  ScratchFolder folder_;
  const std::string digits_;
};

std::string three_addresses() {
  std::array<std::unique_ptr<Listener>, 3> listeners;
  std::string text;
  for (auto& listener : listeners) {
    listener = std::make_unique<Listener>("127.0.0.1:0");
    text += (text.empty() ? "" : ",") + listener->address();
  }
  return text;
}

TEST_F(SecureTraining, GivesTheSameWeightsOverEveryTransport) {
  for (const char* parties : {"2", "3"}) {
    const nlohmann::json planned = run_local(tiny("planned", parties));
    const std::string digest = planned.at("weights_sha256");
    EXPECT_EQ(digest.size(), 64U);
    EXPECT_GT(planned.at("accuracy"), 0.9);
    EXPECT_GT(planned.at("plain_accuracy"), 0.9);
    EXPECT_NEAR(planned.at("accuracy"), planned.at("plain_accuracy").get<double>(), 0.01);
    for (const char* transport : {"ring", "tcp"}) {
      const nlohmann::json other = run_local(tiny(transport, parties));
      EXPECT_EQ(other.at("weights_sha256"), digest) << transport;
      EXPECT_EQ(other.at("accuracy"), planned.at("accuracy")) << transport;
      ASSERT_EQ(other.at("stages").size(), planned.at("stages").size());
      for (std::size_t i = 0; i < other.at("stages").size(); ++i) {
        for (const char* figure : {"stage", "sent_bytes", "received_bytes", "rounds"})
          EXPECT_EQ(other["stages"][i].at(figure), planned["stages"][i].at(figure)) << transport;
      }
    }
  }
}

// By leat's settings alone. TCP counts as leaving the host, shared memory does not.
TEST_F(SecureTraining, ConfidentialPutsTcpInsideTlsAndNeedsAKey) {
  const std::string digest = run_local(tiny("planned", "2", "1")).at("weights_sha256");
  const ScratchVariable require("LEAT_CONFIDENTIAL", "require");
  const ProgramResult refused =
      run_program(kSecureTraining, Arguments{"--local"} + with_digits() + tiny("tcp", "2", "1"));
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, testing::HasSubstr("confidential = require"));
  EXPECT_THAT(refused.err, testing::HasSubstr("tls_psk_file"));
  const ScratchVariable key("LEAT_TLS_PSK_FILE", folder_.write("key", std::string(64, 'a')));
  const ScratchVariable log("LEAT_LOG_LEVEL", "info");
  for (const char* transport : {"tcp", "planned"}) {
    const ProgramResult run = run_program(
        kSecureTraining, Arguments{"--local"} + with_digits() + tiny(transport, "2", "1"));
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(nlohmann::json::parse(run.out).at("weights_sha256"), digest) << transport;
    // Three processes, each of which has a connection with each other one.
    const char* const expected =
        transport == std::string("tcp") ? "TLS" : "not encrypted because it stays in this host";
    EXPECT_EQ(count_of("accepted ", run.err), 3U) << run.err;
    EXPECT_EQ(count_of("connected to ", run.err), 3U) << run.err;
    EXPECT_EQ(count_of(expected, run.err), 6U) << run.err;
  }
}

TEST_F(SecureTraining, CountsWhatItSends) {
  const nlohmann::json result = run_local(tiny("planned"));
  const double steps = 3 * 25;
  // The first layer's weights under a mask, and its product to be truncated; nothing of the
  // samples.
  EXPECT_EQ(result.at("stages")[0].at("stage"), "fc1");
  EXPECT_EQ(result.at("stages")[0].at("sent_bytes"), steps * 4 * (12 * 16 + 32 * 16));
  EXPECT_EQ(result.at("stages")[0].at("rounds"), steps * 2);
  // A number of 512 is 32 bits; the comparison opens 23, 11, 5 and 2; then its result.
  EXPECT_EQ(result.at("stages")[1].at("stage"), "relu1");
  EXPECT_EQ(result.at("stages")[1].at("sent_bytes"), steps * 512 / 8 * (32 + 23 + 11 + 5 + 2 + 1));
  EXPECT_EQ(result.at("stages")[1].at("rounds"), steps * 6);
}

TEST_F(SecureTraining, OtherSeedsGiveOtherWeights) {
  const auto digest = [&](const Arguments& seed) {
    const ProgramResult result = run_program(
        kSecureTraining, Arguments{"--local", "--digits", digits_} + seed + tiny("planned"));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out).at("weights_sha256").get<std::string>();
  };
  EXPECT_EQ(digest({"--seed", "7"}), digest({"--seed", "7"}));
  EXPECT_NE(digest({"--seed", "7"}), digest({"--seed", "8"}));
  EXPECT_NE(digest({}), digest({}));
}

TEST_F(SecureTraining, RunsAsProcessesOfTheirOwn) {
  const Arguments common = tiny("planned") + Arguments{"--addresses", three_addresses()};
  Program dealer(kSecureTraining, Arguments{"--dealer"} + with_digits() + common);
  Program second(kSecureTraining, Arguments{"--party", "1"} + common);
  Program first(kSecureTraining, Arguments{"--party", "0"} + common);
  std::string digest;
  for (Program* program : {&first, &second, &dealer}) {
    const ProgramResult result = program->wait();
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const nlohmann::json json = nlohmann::json::parse(result.out);
    if (digest.empty()) digest = json.at("weights_sha256");
    EXPECT_EQ(json.at("weights_sha256"), digest);
  }
}

TEST_F(SecureTraining, EndsWithAnErrorWhenAPartyIsKilled) {
  const ScratchVariable log("LEAT_LOG_LEVEL", "info");
  for (const char* transport : {"planned", "ring", "tcp"}) {
    for (unsigned victim = 0; victim < 3; ++victim) {
      const Arguments common =
          tiny(transport, "2", "10000") + Arguments{"--addresses", three_addresses()};
      std::vector<std::unique_ptr<Program>> programs;
      programs.push_back(
          std::make_unique<Program>(kSecureTraining, Arguments{"--party", "0"} + common));
      programs.push_back(
          std::make_unique<Program>(kSecureTraining, Arguments{"--party", "1"} + common));
      programs.push_back(std::make_unique<Program>(kSecureTraining,
                                                   Arguments{"--dealer"} + with_digits() + common));
      programs[1]->wait_for("connected to");  // 0
      programs[1]->wait_for("accepted");      // 2
      programs[2]->wait_for("connected to");  // 0
      programs[victim]->kill();
      for (unsigned party = 0; party < 3; ++party) {
        if (party == victim) continue;
        const ProgramResult result = programs[party]->wait();
        EXPECT_EQ(result.exit_code, 1) << transport << ", killed " << victim << ", at " << party;
        EXPECT_NE(result.err.find("party " + std::to_string(victim)), std::string::npos)
            << transport << ", killed " << victim << ", at " << party << ": " << result.err;
      }
    }
  }
}

TEST_F(SecureTraining, PartiesThatWantOtherThingsRefuseEachOther) {
  const Arguments addresses{"--addresses", three_addresses()};
  Program first(kSecureTraining, Arguments{"--party", "0"} + addresses + tiny("planned"));
  Program second(kSecureTraining,
                 Arguments{"--party", "1"} + addresses + tiny("planned", "2", "4"));
  const ProgramResult result = second.wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("plan"), std::string::npos) << result.err;
}

TEST_F(SecureTraining, SaysWhatIsWrongWithTheDigits) {
  const auto complaint = [&](const Arguments& more) {
    const ProgramResult result =
        run_program(kSecureTraining, Arguments{"--local"} + with_digits() + more);
    EXPECT_EQ(result.exit_code, 1) << result.err;
    return result.err;
  };
  EXPECT_NE(complaint(small("13,4")).find("12 pixels"), std::string::npos);
  EXPECT_NE(complaint(small("12,4", "1000")).find("too few"), std::string::npos);
  const std::string good = made_up_digits();
  const std::vector<std::pair<std::string, const char*>> bad{
      {"", "is not a file of digits"},
      {"nothing of the kind", "is not a file of digits"},
      {"digits 2 1000 12 4\n", "is not a file of digits"},
      {"digits 1 99999999999 12 4\n", "claims"},
      {"digits 1 0 12 4\n", "claims"},
      {good.substr(0, good.size() - 1), "ends after 999"},
      {good + "x", "goes on"},
      {good.substr(0, good.size() - 1) + "\x04", "not a class"},
  };
  for (const auto& [text, expected] : bad) {
    write(text);
    EXPECT_NE(complaint(small()).find(expected), std::string::npos) << expected;
  }
}

TEST_F(SecureTraining, ChecksItsArguments) {
  for (const Arguments& arguments : std::vector<Arguments>{
           {},
           {"--local"},
           {"--party", "0"},
           {"--party", "3", "--addresses", "a:1,b:1,c:1"},
           {"--party", "0", "--addresses", "a:1,b:1"},
           {"--dealer", "--addresses", "a:1,b:1,c:1"},
           {"--local", "--party", "1", "--digits", digits_},
           {"--local", "--digits", digits_, "--parties", "4"},
           {"--local", "--digits", digits_, "--transport", "pigeon"},
           {"--local", "--digits", digits_, "--batch", "100"},
           {"--local", "--digits", digits_, "--batch", "0"},
           {"--local", "--digits", digits_, "--samples", "100"},
           {"--local", "--digits", digits_, "--widths", "784"},
           {"--local", "--digits", digits_, "--epochs", "0"},
           {"--local", "--digits", digits_, "--batch", "65536", "--rate-bits", "16"},
       }) {
    const ProgramResult result = run_program(kSecureTraining, arguments);
    EXPECT_EQ(result.exit_code, 2) << testing::PrintToString(arguments) << result.err;
    EXPECT_FALSE(result.err.empty());
  }
}

}  // namespace
}  // namespace leat::detail
