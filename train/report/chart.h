// Line charts as SVG, for a page, a README or a paper.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ink {

struct ChartLine {
  enum class Style { line, thin, dashed, points };
  std::string name;  // in the legend
  Style style = Style::line;
  int colour = 0;                                 // 0 to 5
  std::vector<std::pair<double, double>> points;  // x and y, by x; what is not finite is a gap
};

struct Chart {
  std::string title, x_label, y_label;
  std::vector<ChartLine> lines;
  bool log_y = true;  // a logarithmic y axis, where every y is positive
};

/// The chart as one SVG element, `width` by `height` pixels. Texts are text, colours can be told
/// apart by the colour-blind (Okabe and Ito, 2008), and the background follows light or dark.
std::string chart_svg(const Chart& chart, int width = 760, int height = 400);

/// The chart in characters, `columns` wide and `rows` high with its title and axes: * for a line, o
/// for points, - for what is dashed. Lines without a name are left out.
std::string chart_text(const Chart& chart, int columns = 80, int rows = 20);

/// Exponential moving average over x, with weight 1 / e after `span`, corrected for its start.
std::vector<std::pair<double, double>> smoothed(
    const std::vector<std::pair<double, double>>& points, double span);

}  // namespace ink
