#include "server/report.h"

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "machine.h"

namespace leat::bench {
namespace {

using nlohmann::ordered_json;

constexpr double kNone = 0;

// "-" where there is nothing to compare with.
std::string ratio_text(double ratio) {
  if (ratio == kNone) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", ratio);
  return text;
}

// The round trip of `row` through that of the row with this way and number of channels.
double ratio_to(const std::vector<ServerRow>& rows, const ServerRow& row, ServerWay way,
                std::size_t channels) {
  const auto other = std::ranges::find_if(
      rows, [&](const ServerRow& one) { return one.way == way && one.channels == channels; });
  if (other == rows.end() || &*other == &row) return kNone;
  return row.figures.round_trip_us / other->figures.round_trip_us;
}

double vs_tcp(const std::vector<ServerRow>& rows, const ServerRow& row) {
  return is_tcp(row.way) ? kNone : ratio_to(rows, row, row.beside, row.channels);
}

double vs_pair(const std::vector<ServerRow>& rows, const ServerRow& row) {
  return is_tcp(row.way) ? kNone : ratio_to(rows, row, ServerWay::kBlocking, 1);
}

}  // namespace

void ServerReport::print_header(const ServerFigures& figures) {
  device_ = figures.device;
  transport_ = figures.transport;
  if (json_) return;
  std::printf("leat as a server: one thread, many channels, and plain TCP with epoll beside\n");
  const auto line = [](const std::string& name, const std::string& value) {
    std::printf(" %-15s : %s\n", name.c_str(), value.c_str());
  };
  line("Device", device_);
  line("Transport", transport_);
  line("Link", figures.link);
  for (const auto& [name, value] : lines_) line(name, value);
  std::printf(" %-9s %-9s %-7s %-7s %-17s %-11s %-8s %-8s %-11s %-9s %-9s %s\n", "way", "channels",
              "active", "server", "round trip[usec]", "messages/s", "/tcp", "/pair", "connect[s]",
              "close[s]", "KiB each", "fds each");
}

void ServerReport::add_row(const ServerRow& row, double to_tcp, double to_pair) {
  const ServerFigures& figures = row.figures;
  results_.push_back({{"way", to_string(row.way)},
                      {"channels", row.channels},
                      {"active", row.active},
                      {"server_spins", row.spins},
                      {"t_typical_us", figures.round_trip_us},
                      {"messages_per_second", figures.messages_per_second},
                      {"connect_s", figures.connect_s},
                      {"close_s", figures.close_s},
                      {"kib_each", figures.kib_each},
                      {"fds_each", figures.fds_each}});
  if (json_) return;
  std::printf(" %-9s %-9zu %-7zu %-7s %-17.3f %-11.0f %-8s %-8s %-11.4f %-9.4f %-9.1f %.1f\n",
              to_string(row.way), row.channels, row.active, row.spins ? "spins" : "sleeps",
              figures.round_trip_us, figures.messages_per_second, ratio_text(to_tcp).c_str(),
              ratio_text(to_pair).c_str(), figures.connect_s, figures.close_s, figures.kib_each,
              figures.fds_each);
  std::fflush(stdout);
}

void ServerReport::add(std::size_t channels, const std::vector<ServerRow>& rows) {
  if (results_.empty()) print_header(rows.front().figures);
  for (const ServerRow& row : rows) add_row(row, vs_tcp(rows, row), vs_pair(rows, row));
  add_ratios(channels, rows);
}

void ServerReport::add_ratios(std::size_t channels, const std::vector<ServerRow>& rows) {
  const std::string count = std::to_string(channels);
  for (const ServerRow& row : rows) {
    if (is_tcp(row.way) || row.channels != channels) continue;
    const std::string name =
        (row.way == ServerWay::kPoller ? "poller_"
                                       : std::string("server_") + to_string(row.way) + "_") +
        count;
    const auto set = [&](const char* what, double ratio) {
      if (ratio != kNone) ratios_[name + what] = ratio;
    };
    set("_vs_tcp", vs_tcp(rows, row));
    set("_vs_pair", vs_pair(rows, row));
  }
  // Of the first way: with epoll, which needs a descriptor more, if that is measured.
  const auto first = std::ranges::find_if(
      rows, [&](const ServerRow& row) { return !is_tcp(row.way) && row.channels == channels; });
  if (first == rows.end()) return;
  const std::string name = "server_" + count;
  ratios_[name + "_connect_s"] = first->figures.connect_s;
  ratios_[name + "_close_s"] = first->figures.close_s;
  ratios_[name + "_kib_each"] = first->figures.kib_each;
  ratios_[name + "_fds_each"] = first->figures.fds_each;
}

void ServerReport::finish() const {
  if (!json_) return;
  const Machine machine = this_machine();
  ordered_json object{
      {"bench", "server"},
      {"device", device_},
      {"transport", transport_},
      {"host", {{"cpu", machine.cpu}, {"cores", machine.cores}, {"kernel", machine.kernel}}}};
  object.update(settings_);
  object["results"] = results_;
  object["ratios"] = ratios_;
  std::cout << object.dump(2) << '\n';
}

}  // namespace leat::bench
