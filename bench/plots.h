// Diagrams of results as SVG images, drawn by gnuplot.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace leat::bench {

struct Curve {
  std::string title;
  std::vector<double> values;  // one for each tick
};

struct Chart {
  enum class Kind { kLines, kBars };  // on logarithmic axes, with their names; neither
  Kind kind = Kind::kLines;
  std::string name;  // of its files
  std::string title;
  std::string x_label;
  std::string y_label;
  // Text below the axis, and for lines the place on it.
  std::vector<std::pair<std::string, double>> ticks;
  std::vector<Curve> curves;
};

// gnuplot, a program of its own that every distribution has, draws better and is better kept than
// code of ours would be, and its input stays beside the image for users who want another one.
// Nothing else of leat depends on it.
class Plotter {
 public:
  // Makes the folder. Throws std::runtime_error with advice if that fails, or without gnuplot: ask
  // before measuring.
  explicit Plotter(std::string folder);

  // Writes NAME.svg, and what it was drawn from: NAME.gp and NAME.tsv.
  void draw(const Chart& chart) const;

 private:
  std::string folder_;
};

}  // namespace leat::bench
