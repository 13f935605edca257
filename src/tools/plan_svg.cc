#include "tools/plan_svg.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <string_view>

namespace leat::tools {
namespace {

constexpr double kWidth = 1200, kHeight = 640;
constexpr double kLeft = 90, kRight = 170, kTop = 70, kBottom = 200;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr double kPlotHeight = kHeight - kTop - kBottom;
constexpr std::size_t kMostLabels = 60;
constexpr unsigned kYTicks = 5;

struct Unit {
  const char* name;
  double bytes;
};
constexpr std::array<Unit, 4> kUnits{
    {{"B", 1}, {"KiB", 1024}, {"MiB", 1024.0 * 1024}, {"GiB", 1024.0 * 1024 * 1024}}};

const Unit& unit_of(std::uint64_t bytes) {
  const Unit* best = kUnits.data();
  for (const Unit& unit : kUnits) {
    if (static_cast<double>(bytes) >= unit.bytes) best = &unit;
  }
  return *best;
}

// Okabe and Ito's colours, which people with any colour vision can tell apart.
const char* colour_of(scml::Protocol protocol) {
  switch (protocol) {
    case scml::Protocol::kSs:
      return "#0072b2";
    case scml::Protocol::kBoolean:
      return "#e69f00";
    case scml::Protocol::kGc:
      return "#009e73";
    case scml::Protocol::kOt:
      return "#cc79a7";
    case scml::Protocol::kHe:
      return "#d55e00";
    case scml::Protocol::kConversion:
      return "#56b4e9";
  }
  return "#999999";
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '&':
        result += "&amp;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

// A round number near `span` / kYTicks: 1, 2 or 5 times a power of ten.
double tick_step(double span) {
  double step = 1;
  while (step * 10 * kYTicks <= span) step *= 10;
  while (step * kYTicks > span * 10) step /= 10;
  for (const double factor : {5.0, 2.0}) {
    if (step * factor * kYTicks <= span) return step * factor;
  }
  return step;
}

class Drawing {
 public:
  explicit Drawing(const scml::Plan& plan)
      : plan_(plan),
        unit_(unit_of(plan.peak_bytes)),
        top_bytes_(std::max<double>(1, static_cast<double>(plan.peak_bytes))) {}

  std::string draw(const std::string& title) {
    print(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
        "viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
        kWidth, kHeight, kWidth, kHeight);
    text(kLeft, 34, escaped(title), "font-size=\"18\"");
    draw_y_axis();
    draw_x_axis();
    if (plan_.offline_bytes > 0) draw_fixed_part();
    for (const scml::Step& step : plan_.steps) draw_boxes(step);
    print(
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" "
        "stroke=\"#333\"/>\n",
        kLeft, kTop, kPlotWidth, kPlotHeight);
    draw_legend();
    return svg_ + "</svg>\n";
  }

 private:
  __attribute__((format(printf, 2, 3))) void print(const char* format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    svg_ += line;
  }

  // `content` is escaped already.
  void text(double x, double y, const std::string& content, const char* attributes) {
    print("<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
    svg_ += content + "</text>\n";
  }

  double x_of(std::size_t step) const {
    const auto steps = static_cast<double>(std::max<std::size_t>(1, plan_.steps.size()));
    return kLeft + kPlotWidth * static_cast<double>(step) / steps;
  }
  double y_of(double bytes) const { return kTop + kPlotHeight * (1 - bytes / top_bytes_); }

  void draw_y_axis() {
    const double span = top_bytes_ / unit_.bytes;
    const double step = tick_step(span);
    for (double value = 0; value <= span * 1.0001; value += step) {
      const double y = y_of(value * unit_.bytes);
      print("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", kLeft, y,
            kLeft + kPlotWidth, y);
      char label[32];
      std::snprintf(label, sizeof label, "%.4g", value);
      text(kLeft - 8, y + 4, label, "text-anchor=\"end\"");
    }
    const double middle = kTop + kPlotHeight / 2;
    char attributes[96];
    std::snprintf(attributes, sizeof attributes,
                  "text-anchor=\"middle\" transform=\"rotate(-90 24 %.1f)\"", middle);
    text(24, middle, std::string("place in the region (") + unit_.name + ")", attributes);
  }

  void draw_x_axis() {
    const std::size_t every = (plan_.steps.size() + kMostLabels - 1) / kMostLabels;
    for (std::size_t step = 0; step < plan_.steps.size(); step += every) {
      const double x = (x_of(step) + x_of(step + 1)) / 2 + 4;
      const double y = kTop + kPlotHeight + 12;
      char attributes[96];
      std::snprintf(attributes, sizeof attributes,
                    "text-anchor=\"end\" font-size=\"10\" transform=\"rotate(-60 %.1f %.1f)\"", x,
                    y);
      text(x, y, escaped(plan_.steps[step].name), attributes);
    }
    text(kLeft + kPlotWidth / 2, kHeight - 12, "steps, in the order in which they run",
         "text-anchor=\"middle\"");
  }

  void draw_fixed_part() {
    const double y = y_of(static_cast<double>(plan_.offline_bytes));
    print("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#f2f2f2\"/>\n", kLeft,
          y, kPlotWidth, kTop + kPlotHeight - y);
  }

  void draw_boxes(const scml::Step& step) {
    for (const std::size_t index : step.arrays) {
      const scml::Placement& placement = plan_.placements[index];
      const auto base = static_cast<double>(placement.base_bytes);
      const auto bytes = static_cast<double>(placement.messages.bytes());
      const double x = x_of(placement.first_step);
      print(
          "<rect x=\"%.1f\" y=\"%.2f\" width=\"%.1f\" height=\"%.2f\" fill=\"%s\" "
          "fill-opacity=\"0.8\" stroke=\"white\" stroke-width=\"0.5\"><title>",
          x, y_of(base + bytes), x_of(placement.last_step + 1) - x, y_of(base) - y_of(base + bytes),
          colour_of(step.protocol));
      svg_ += escaped(step.name + ", " + placement.messages.content) + ": context " +
              std::to_string(placement.context) + ", " + rounded_size(placement.messages.bytes()) +
              "</title></rect>\n";
    }
  }

  void draw_legend() {
    std::map<scml::Protocol, bool> present;
    for (const scml::Step& step : plan_.steps) {
      if (!step.arrays.empty()) present[step.protocol] = true;
    }
    double y = kTop + 10;
    const double x = kLeft + kPlotWidth + 20;
    text(x, y, "protocol", "font-weight=\"bold\"");
    for (const auto& [protocol, is_present] : present) {
      y += 22;
      print(
          "<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\" fill=\"%s\" "
          "fill-opacity=\"0.8\"/>\n",
          x, y - 11, colour_of(protocol));
      text(x + 22, y, std::string(scml::to_string(protocol)), "");
    }
    if (plan_.offline_bytes == 0) return;
    y += 22;
    print(
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\" fill=\"#f2f2f2\" "
        "stroke=\"#999\"/>\n",
        x, y - 11);
    text(x + 22, y, "kept for triples", "");
  }

  const scml::Plan& plan_;
  const Unit& unit_;
  double top_bytes_;
  std::string svg_;
};

}  // namespace

std::string rounded_size(std::uint64_t bytes) {
  const Unit& unit = unit_of(bytes);
  char text[32];
  std::snprintf(text, sizeof text, unit.bytes == 1 ? "%.0f %s" : "%.1f %s",
                static_cast<double>(bytes) / unit.bytes, unit.name);
  return text;
}

std::string draw_plan(const scml::Plan& plan, const std::string& title) {
  return Drawing(plan).draw(title);
}

}  // namespace leat::tools
