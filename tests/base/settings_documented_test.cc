// The pages and the header that repeat the settings say what their table in settings.cc says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/settings.h"

namespace leat::detail {
namespace {

namespace fs = std::filesystem;

using Descriptions = std::map<std::string, SettingDescription>;

const fs::path kSource = LEAT_SOURCE_FOLDER;

std::string contents(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

Descriptions by_name() {
  Descriptions all;
  for (SettingDescription& one : describe_settings()) all.emplace(one.name, std::move(one));
  return all;
}

std::string shown_default(const SettingDescription& setting) {
  return setting.default_value.empty() ? "none" : setting.default_value;
}

// What roff sets as it stands.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '-') {
      result += "\\-";
    } else if (c == '^') {
      result += "\\(ha";
    } else {
      result += c;
    }
  }
  return result;
}

// --- leat.7

constexpr std::string_view kBegin =
    ".\\\" From here written by LEAT_TEST_WRITE_DOCS=1 base_tests "
    "--gtest_filter='SettingsDocumented*'.\n";
constexpr std::string_view kEnd = ".\\\" To here.\n";

std::string page_of_settings() {
  std::ostringstream page;
  for (const SettingDescription& setting : describe_settings())
    page << ".TP\n.BR " << setting.name << " \" (" << escaped(shown_default(setting)) << ")\"\n"
         << escaped(setting.help) << ".\nAllowed: " << escaped(setting.allowed) << ".\n";
  return page.str();
}

TEST(SettingsDocumented, ManPageListsWhatTheTableHas) {
  const fs::path path = kSource / "docs/man/leat.7";
  std::string page = contents(path);
  const std::size_t begin = page.find(kBegin);
  const std::size_t end = page.find(kEnd);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos && begin < end);
  const std::size_t from = begin + kBegin.size();
  if (std::getenv("LEAT_TEST_WRITE_DOCS") != nullptr) {
    page.replace(from, end - from, page_of_settings());
    std::ofstream(path) << page;
    return;
  }
  EXPECT_EQ(page.substr(from, end - from), page_of_settings())
      << "Run base_tests with LEAT_TEST_WRITE_DOCS=1 to write it again.";
}

// --- docs/transports

std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> result;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, '|');) {
    const std::size_t first = cell.find_first_not_of(' ');
    result.push_back(first == std::string::npos
                         ? ""
                         : cell.substr(first, cell.find_last_not_of(' ') - first + 1));
  }
  return result;
}

// Checks the tables of settings in a page; `seen` gets their names.
void check_tables(const fs::path& path, const Descriptions& settings, std::set<std::string>& seen) {
  std::istringstream page(contents(path));
  bool in_table = false;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("|")) {
      in_table = false;
      continue;
    }
    if (line.starts_with("| setting ")) {
      EXPECT_EQ(line, "| setting | default | allowed | |") << path;
      in_table = true;
      continue;
    }
    if (!in_table || line.starts_with("|---")) continue;
    const std::vector<std::string> row = cells(line);
    ASSERT_EQ(row.size(), 5U) << path << ": " << line;
    const auto setting = settings.find(row[1].substr(1, row[1].size() - 2));  // in backticks
    ASSERT_NE(setting, settings.end()) << path << ": " << row[1] << " is not a setting";
    EXPECT_EQ(row[2], shown_default(setting->second)) << path << ": " << row[1];
    EXPECT_EQ(row[3], setting->second.allowed) << path << ": " << row[1];
    seen.insert(setting->first);
  }
}

TEST(SettingsDocumented, PagesOfTransportsHaveTheirSettings) {
  const Descriptions settings = by_name();
  std::set<std::string> seen;
  for (const auto& page : fs::directory_iterator(kSource / "docs/transports"))
    ASSERT_NO_FATAL_FAILURE(check_tables(page.path(), settings, seen));
  for (const auto& [name, setting] : settings) {
    if (setting.help.starts_with("transport")) {
      EXPECT_TRUE(seen.contains(name)) << name << " is in no page of docs/transports";
    }
  }
}

// --- leat/options.h

// The fields behind one comment of struct Options.
struct Fields {
  std::string comment;
  std::vector<std::string> names;
};

std::vector<Fields> fields_of_options() {
  const std::regex field(R"(^  std::optional<([^>]*)> (\w+);$)");
  std::istringstream header(contents(kSource / "include/leat/options.h"));
  std::vector<Fields> all;
  bool in_struct = false;
  for (std::string line; std::getline(header, line);) {
    std::smatch match;
    if (line.starts_with("struct ")) {
      in_struct = true;
    } else if (in_struct && line.starts_with("  // ")) {
      if (all.empty() || !all.back().names.empty()) all.emplace_back();
      all.back().comment += (all.back().comment.empty() ? "" : " ") + line.substr(5);
    } else if (in_struct && std::regex_match(line, match, field)) {
      const bool has_unit = match[1].str().starts_with("std::chrono::");
      const char* unit = match[1] == "std::chrono::microseconds" ? "_us" : "_ms";
      all.back().names.push_back(match[2].str() + (has_unit ? unit : ""));
    }
  }
  return all;
}

// "4 KiB" to "4K".
std::string as_setting(const std::string& number, const std::string& unit) {
  return unit.empty() ? number : number + unit[1];
}

// The ranges that a comment names, as a setting's `allowed` says them.
std::set<std::string> ranges_of(const std::string& comment) {
  const std::regex range(R"((\d+)( [KMG]iB)? to (\d+)\b( [KMG]iB)?(?! digits))");
  std::set<std::string> ranges;
  for (std::sregex_iterator match(comment.begin(), comment.end(), range), end; match != end;
       ++match)
    ranges.insert("from " + as_setting((*match)[1], (*match)[2]) + " to " +
                  as_setting((*match)[3], (*match)[4]));
  return ranges;
}

std::optional<std::string> range_of(const SettingDescription& setting) {
  std::smatch match;
  if (!std::regex_search(setting.allowed, match, std::regex(R"(from \w+ to \w+)")))
    return std::nullopt;
  return match.str();
}

// The defaults that a comment names: `"auto" (default)`, `0 (default: ...)`, `(default: yes)`.
std::set<std::string> defaults_of(const std::string& comment) {
  const std::regex before(R"re((?:"([^"]*)"|(\w+)) \(default[):])re");
  const std::regex inside(R"(\(default: (yes|no)\))");
  std::set<std::string> defaults;
  for (std::sregex_iterator match(comment.begin(), comment.end(), before), end; match != end;
       ++match) {
    const std::string said = (*match)[1].matched ? (*match)[1].str() : (*match)[2].str();
    const bool is_value = (*match)[1].matched || std::isdigit(static_cast<unsigned char>(said[0]));
    if (said == "Negative") defaults.insert("inf");
    if (is_value) defaults.insert(said);
  }
  for (std::sregex_iterator match(comment.begin(), comment.end(), inside), end; match != end;
       ++match)
    defaults.insert((*match)[1]);
  return defaults;
}

TEST(SettingsDocumented, OptionsAreTheSettingsAndTheirCommentsSayWhatTheTableSays) {
  const Descriptions settings = by_name();
  std::set<std::string> missing;
  for (const auto& [name, setting] : settings)
    if (!name.starts_with("log_")) missing.insert(name);  // those of the process
  std::size_t ranges = 0;
  std::size_t defaults = 0;
  for (const Fields& fields : fields_of_options()) {
    std::set<std::string> allowed_ranges;
    std::set<std::string> true_defaults;
    for (const std::string& name : fields.names) {
      const auto setting = settings.find(name);
      ASSERT_NE(setting, settings.end()) << name;
      missing.erase(name);
      if (const auto range = range_of(setting->second)) allowed_ranges.insert(*range);
      true_defaults.insert(setting->second.default_value);
    }
    EXPECT_EQ(ranges_of(fields.comment), allowed_ranges) << fields.comment;
    const std::set<std::string> said = defaults_of(fields.comment);
    EXPECT_TRUE(std::ranges::includes(true_defaults, said)) << fields.comment;
    ranges += allowed_ranges.size();
    defaults += said.size();
  }
  EXPECT_TRUE(missing.empty()) << *missing.begin() << " is not an option";
  // Else the expressions above find nothing.
  EXPECT_GE(ranges, 8U);
  EXPECT_GE(defaults, 8U);
}

}  // namespace
}  // namespace leat::detail
