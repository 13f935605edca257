#include "preload/configuration.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "preload/address.h"
#include "preload/real.h"

namespace leat::preload {
namespace {

struct Rule {
  bool exclude = false;
  bool any_address = true;
  Address address;        // its port is not looked at
  unsigned prefix = 128;  // bits
  unsigned first_port = 0;
  unsigned last_port = 65535;
};

// "inf": then the kernel is asked whether the peer still lives, and it goes on.
constexpr auto kForever = std::chrono::nanoseconds(std::chrono::seconds(1));

struct Configuration {
  Level level = Level::kWarn;
  std::string log_file;
  bool escapes = false;
  bool all = false;
  std::string meeting_folder;
  std::chrono::nanoseconds spin{std::chrono::microseconds(50)};
  std::vector<Rule> rules;
};

bool is_on(const char* value) {
  return value != nullptr && *value != '\0' && strcmp(value, "0") != 0;
}

bool parse_number(std::string_view text, unsigned most, unsigned& value) {
  if (text.empty() || text.size() > 5) return false;
  value = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9') return false;
    value = value * 10 + static_cast<unsigned>(digit - '0');
  }
  return value <= most;
}

bool parse_ports(std::string_view text, Rule& rule) {
  const std::size_t dash = text.find('-');
  const std::string_view last = dash == std::string_view::npos ? text : text.substr(dash + 1);
  return parse_number(text.substr(0, dash), 65535, rule.first_port) &&
         parse_number(last, 65535, rule.last_port) && rule.first_port <= rule.last_port;
}

bool parse_address(std::string_view text, Rule& rule) {
  rule.any_address = text.empty() || text == "*";
  if (rule.any_address) return true;
  const std::size_t slash = text.find('/');
  const std::string host(text.substr(0, slash));
  in_addr v4{};
  unsigned most = 128;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    rule.address = Address::v4(v4, 0);
    most = 32;
  } else if (inet_pton(AF_INET6, host.c_str(), rule.address.bytes.data()) != 1) {
    return false;
  }
  rule.prefix = most;
  if (slash != std::string_view::npos && !parse_number(text.substr(slash + 1), most, rule.prefix))
    return false;
  rule.prefix += 128 - most;
  return true;
}

// [^]ADDRESS[/BITS][:PORT[-PORT]], the address of IPv6 in brackets, * for any.
bool parse_rule(std::string_view text, Rule& rule) {
  rule.exclude = text.starts_with('^');
  if (rule.exclude) text.remove_prefix(1);
  std::string_view host = text;
  std::string_view ports;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return false;
    host = text.substr(1, end - 1);
    ports = text.substr(end + 1);
  } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    ports = text.substr(colon);
  }
  if (!ports.empty()) {
    if (ports[0] != ':' || !parse_ports(ports.substr(1), rule)) return false;
  }
  return parse_address(host, rule);
}

// Before the program has other threads, as a rule.
// NOLINTBEGIN(concurrency-mt-unsafe)
Configuration read() {
  Configuration result;
  const char* text = getenv("LEAT_LOG_LEVEL");
  const std::string_view level = text != nullptr ? text : "";
  if (level == "error") result.level = Level::kError;
  if (level == "info") result.level = Level::kInfo;
  if (level == "debug" || level == "trace") result.level = Level::kDebug;
  if (const char* file = getenv("LEAT_LOG_FILE"); file != nullptr) result.log_file = file;
  result.escapes = is_on(getenv("LEAT_PRELOAD_DEBUG"));
  result.all = is_on(getenv("LEAT_PRELOAD_ALL"));
  if (const char* spin = getenv("LEAT_SPIN_US"); spin != nullptr && *spin != '\0') {
    result.spin = strcmp(spin, "inf") == 0
                      ? kForever
                      : std::chrono::nanoseconds(std::chrono::microseconds(atoi(spin)));
  }
  const char* meet = getenv("LEAT_PRELOAD_MEET");
  if (meet != nullptr && *meet == '/') result.meeting_folder = meet;
  if (meet != nullptr && *meet != '/' && *meet != '\0')
    dprintf(STDERR_FILENO, "leat-run: LEAT_PRELOAD_MEET=%s: is ignored; must begin with /\n", meet);
  const char* match = getenv("LEAT_PRELOAD_MATCH");
  std::string_view rest = match != nullptr ? match : "";
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    Rule rule;
    if (parse_rule(rest.substr(0, comma), rule)) {
      result.rules.push_back(rule);
    } else {
      // Nothing can be carried by mistake: what is not understood matches no connection.
      rule = {.exclude = true};
      result.rules.insert(result.rules.begin(), rule);
      dprintf(STDERR_FILENO,
              "leat-run: LEAT_PRELOAD_MATCH=%s: cannot read '%.*s', so nothing is carried; write "
              "[^]ADDRESS[/BITS][:PORT[-PORT]], separated by commas\n",
              match, static_cast<int>(rest.substr(0, comma).size()), rest.data());
    }
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return result;
}
// NOLINTEND(concurrency-mt-unsafe)

Configuration& configuration() {
  static Configuration* const kept = new Configuration(read());  // outlives every destructor
  return *kept;
}

bool covers(const Rule& rule, const Address& address) {
  if (address.port < rule.first_port || address.port > rule.last_port) return false;
  if (rule.any_address || address.any()) return true;
  for (unsigned bit = 0; bit < rule.prefix; ++bit) {
    const unsigned mask = 0x80U >> (bit % 8);
    if (((address.bytes[bit / 8] ^ rule.address.bytes[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

}  // namespace

bool log_enabled(Level level) noexcept { return level <= configuration().level; }

void log(Level level, const char* format, ...) noexcept {
  if (!log_enabled(level)) return;
  const int kept_errno = errno;
  char line[512];
  int bytes = snprintf(line, sizeof(line), "leat-run[%d]: ", static_cast<int>(getpid()));
  va_list arguments;
  va_start(arguments, format);
  bytes += vsnprintf(line + bytes, sizeof(line) - static_cast<std::size_t>(bytes) - 1, format,
                     arguments);
  va_end(arguments);
  if (bytes > static_cast<int>(sizeof(line)) - 2) bytes = sizeof(line) - 2;
  line[bytes++] = '\n';
  int fd = STDERR_FILENO;
  const std::string& file = configuration().log_file;
  if (!file.empty()) {
    fd = static_cast<int>(system_call(SYS_openat, AT_FDCWD, file.c_str(),
                                      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  }
  // Straight to the kernel, past our own write.
  if (fd >= 0) system_call(SYS_write, fd, line, static_cast<std::size_t>(bytes));
  if (!file.empty() && fd >= 0) system_call(SYS_close, fd);
  errno = kept_errno;
}

bool reports_escapes() noexcept { return configuration().escapes; }

bool carries_all() noexcept { return configuration().all; }

const char* meeting_folder() noexcept {
  const std::string& folder = configuration().meeting_folder;
  return folder.empty() ? nullptr : folder.c_str();
}

std::chrono::nanoseconds spin_time() noexcept { return configuration().spin; }

bool matches(const sockaddr_storage& storage) noexcept {
  const Address address = Address::from(storage);
  if (address.port == 0) return false;
  bool only_exclusions = true;
  for (const Rule& rule : configuration().rules) {
    if (covers(rule, address)) return !rule.exclude;
    only_exclusions &= rule.exclude;
  }
  return only_exclusions;
}

}  // namespace leat::preload
