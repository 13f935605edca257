// leat-info, run as a user would.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/settings.h"
#include "leat/leat.h"
#include "support/program.h"
#include "support/scratch.h"

namespace leat::detail {
namespace {

using nlohmann::json;
using testing::HasSubstr;

ProgramResult info(const std::vector<std::string>& arguments) {
  return run_program("src/tools/leat-info", arguments);
}

json info_json(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const ProgramResult result = info(arguments);
  return json::parse(result.out, nullptr, false);
}

const json* find_named(const json& array, const std::string& name) {
  for (const json& entry : array) {
    if (entry.at("name") == name) return &entry;
  }
  return nullptr;
}

TEST(LeatInfo, JsonListsDevicesTransportsAndSettings) {
  const json all = info_json({});
  ASSERT_TRUE(all.is_object());
  EXPECT_EQ(all.at("leat"), leat::version());
  const json* shm = find_named(all.at("devices"), "shm");
  ASSERT_NE(shm, nullptr);
  EXPECT_EQ(shm->at("usable"), true);
  EXPECT_GT(shm->at("limits").at("max_request_bytes"), 0);
  EXPECT_NE(find_named(all.at("transports"), "ring"), nullptr);
  EXPECT_NE(find_named(all.at("transports"), "tcp"), nullptr);
  EXPECT_NE(find_named(all.at("transports"), "attested+confirm-each"), nullptr);
}

TEST(LeatInfo, UnusableDevicesSayWhyNot) {
  const json devices = info_json({"-d"}).at("devices");
  for (const json& device : devices) {
    EXPECT_TRUE(device.at("usable") == true || device.at("why_not") != "") << device;
  }
}

TEST(LeatInfo, JsonHasEverySettingWithAllOfItsFields) {
  const json settings = info_json({"-c"}).at("settings");
  EXPECT_EQ(settings.size(), describe_settings().size());
  for (const json& setting : settings) {
    for (const char* field :
         {"name", "variable", "type", "allowed", "value", "default", "origin", "help"}) {
      EXPECT_TRUE(setting.contains(field)) << field << " of " << setting;
    }
  }
}

TEST(LeatInfo, SettingsTellWhatTheEnvironmentSet) {
  const ScratchVariable spin("LEAT_SPIN_US", "7");
  const json settings = info_json({"-c"}).at("settings");
  const json* setting = find_named(settings, "spin_us");
  ASSERT_NE(setting, nullptr);
  EXPECT_EQ(setting->at("value"), "7");
  EXPECT_EQ(setting->at("origin"), "environment");
  EXPECT_NE(setting->at("default"), "7");
}

TEST(LeatInfo, BadSettingIsNamedAndFails) {
  const ScratchVariable spin("LEAT_SPIN_US", "soon");
  const ProgramResult result = info({"-c"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("LEAT_SPIN_US"));
  const ProgramResult check = info({"--check"});
  EXPECT_EQ(check.exit_code, 1);
  EXPECT_THAT(check.out, HasSubstr("LEAT_SPIN_US"));
}

TEST(LeatInfo, CheckPassesOnAnyMachine) {
  const ProgramResult result = info({"--check", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const json all = json::parse(result.out);
  EXPECT_EQ(all.at("can_run"), true);
  for (const char* name :
       {"settings", "as asked", "device shm", "membarrier", "/dev/infiniband", "locked memory"}) {
    EXPECT_NE(find_named(all.at("checks"), name), nullptr) << name;
  }
  for (const json& check : all.at("checks")) {
    EXPECT_EQ(check.at("verdict") != "ok", check.at("advice") != "") << check;
  }
}

TEST(LeatInfo, CheckFailsForADeviceThatThereIsNot) {
  const ProgramResult result = info({"--check", "--device", "ib:nosuch9"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("ib:nosuch9"));
  EXPECT_THAT(result.out, HasSubstr("leat cannot run as asked"));
}

TEST(LeatInfo, CheckFailsForATransportThatThereIsNot) {
  EXPECT_EQ(info({"--check", "--transport", "pigeon"}).exit_code, 1);
}

TEST(LeatInfo, CheckFailsForATransportThatTheDeviceCannotCarry) {
  EXPECT_EQ(info({"--check", "--device", "tcp", "--transport", "ring"}).exit_code, 1);
  EXPECT_EQ(info({"--check", "--device", "shm", "--transport", "ring"}).exit_code, 0);
}

TEST(LeatInfo, CheckReachesAListener) {
  Listener listener("127.0.0.1:0");
  const ProgramResult result = info({"--check", listener.address()});
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("a TCP connection to " + listener.address() + " works"));
}

TEST(LeatInfo, CheckFailsWhereNobodyListens) {
  std::string address;
  {
    Listener listener("127.0.0.1:0");
    address = listener.address();
  }
  const ProgramResult result = info({"--check", address});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("Start the listener there first"));
}

TEST(LeatInfo, CheckOfAHostWithoutPortNeedsNoListener) {
  EXPECT_EQ(info({"--check", "127.0.0.1"}).exit_code, 0);
}

TEST(LeatInfo, WrongArgumentsExitWithTwoAndPointToHelp) {
  const ProgramResult result = info({"--nosuch"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--nosuch"));
  EXPECT_THAT(result.err, HasSubstr("--help"));
}

TEST(LeatInfo, HelpTeachesWithExamples) {
  const ProgramResult result = info({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("Examples:"));
  EXPECT_THAT(result.out, HasSubstr("leat-info --check --device ib"));
}

TEST(LeatInfo, TellsItsVersion) {
  const ProgramResult result = info({"-v"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, std::string("leat ") + leat::version() + "\n");
}

}  // namespace
}  // namespace leat::detail
