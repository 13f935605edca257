// The log reads its settings once in a process, so each test runs it in a process of its own.
#include "base/log.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

#include "support/scratch.h"

namespace leat::detail {
namespace {

class LogDeathTest : public testing::Test {
 protected:
  LogDeathTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }

  // In the child: environment, then some lines.
  static void log_with(const char* level, const std::string& file) {
    setenv("HOME", "/nonexistent", 1);
    unsetenv("LEAT_CONF_FILE");
    if (level != nullptr) setenv("LEAT_LOG_LEVEL", level, 1);
    setenv("LEAT_LOG_FILE", file.c_str(), 1);
    log(LogLevel::kError, "one error");
    log(LogLevel::kWarn, "one warning");
    log(LogLevel::kInfo, "one info");
    log_once(LogLevel::kError, "once");
    log_once(LogLevel::kError, "once");
    std::exit(log_enabled(LogLevel::kInfo) ? 10 : 20);
  }
};

TEST_F(LogDeathTest, WarningsAndErrorsAreTheDefault) {
  unsetenv("LEAT_LOG_LEVEL");
  EXPECT_EXIT(log_with(nullptr, ""), testing::ExitedWithCode(20),
              "leat\\[[0-9]+\\] error: one error\n.* warning: one warning\n[^\n]*once\n$");
}

TEST_F(LogDeathTest, LevelIsObeyed) {
  EXPECT_EXIT(log_with("info", ""), testing::ExitedWithCode(10), "info: one info\n");
  EXPECT_EXIT(log_with("error", ""), testing::ExitedWithCode(20), "one error\n[^\n]*once\n$");
}

TEST_F(LogDeathTest, BadLevelLeavesTheDefault) {
  EXPECT_EXIT(log_with("loud", ""), testing::ExitedWithCode(20), "one warning");
}

TEST_F(LogDeathTest, FileThatCannotBeWrittenIsSaid) {
  EXPECT_EXIT(log_with("error", "/dev/null/leat.log"), testing::ExitedWithCode(20),
              "log_file cannot be used.*/dev/null/leat.log.*\n.*one error\n");
}

TEST_F(LogDeathTest, FileTakesTheLines) {
  const ScratchFolder folder;
  // Not by EXPECT_EXIT: its child makes another folder.
  const std::string path = folder.path() + "/leat.log";
  const pid_t child = fork();
  if (child == 0) log_with("info", path);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 10);
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_NE(text.find("info: one info\n"), std::string::npos) << text;
}

TEST_F(LogDeathTest, ForkWhileOthersLogLeavesTheLogUsable) {
  // The children would hang if a thread that they do not have held the log's lock.
  EXPECT_EXIT(
      {
        setenv("LEAT_LOG_FILE", "/dev/null", 1);
        std::atomic<bool> done{false};
        std::thread writer([&] {
          while (!done) log(LogLevel::kError, "busy");
        });
        bool fine = true;
        for (int i = 0; i < 50 && fine; ++i) {
          const pid_t child = fork();
          if (child == 0) {
            log(LogLevel::kError, "from the child");
            _exit(0);
          }
          int status = 0;
          fine = child > 0 && waitpid(child, &status, 0) == child && status == 0;
        }
        done = true;
        writer.join();
        std::exit(fine ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace leat::detail
