#include "train/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "autograd/io/foreign.h"
#include "autograd/io/utf8.h"
#include "train/report/numbers.h"

namespace ink {
namespace {

constexpr const char* kStyle = R"(<style>
  .chart { --ink: #1b1f24; --quiet: #66707c; --line: #d5dae0; --back: #ffffff; --c0: #0072b2;
           --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #e69f00; --c5: #56b4e9; }
  @media (prefers-color-scheme: dark) {
    .chart { --ink: #e8ebee; --quiet: #96a0ab; --line: #3a414a; --back: #14171b; --c0: #56b4e9; }
  }
  .chart text { font: 13px system-ui, sans-serif; fill: var(--ink); }
  .chart .tick { fill: var(--quiet); }
</style>
)";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

// One axis: from values to pixels.
struct Axis {
  double low, high, from, to;  // `from` is low's pixel
  bool log = false;

  double scaled(double v) const { return log ? std::log10(v) : v; }
  double at(double v) const {
    return from + (scaled(v) - scaled(low)) / (scaled(high) - scaled(low)) * (to - from);
  }
  // 1, 2 and 5 times powers of ten, of which a logarithmic axis below a decade may have none: then
  // those of a linear one. Between three and ten, where that can be.
  std::vector<double> ticks() const {
    std::vector<double> found;
    const double decades = log ? std::log10(high) - std::log10(low) : 0;
    if (decades >= 0.7) {
      const int every = std::max(1, int(std::ceil(decades / 8)));
      for (int e = int(std::floor(std::log10(low))); e <= int(std::ceil(std::log10(high))); ++e)
        for (const double digit : {1.0, 2.0, 5.0})
          if (e % every == 0 && (decades < 3 || digit == 1))
            found.push_back(digit * std::pow(10, e));
    } else {
      const double power = std::pow(10, std::floor(std::log10((high - low) / 4)));
      const double times = (high - low) / 4 / power;
      const double step = power * (times < 2 ? 1 : times < 5 ? 2 : 5);
      for (double i = std::ceil(low / step); i * step <= high; ++i) found.push_back(i * step);
    }
    const double slack = 1e-9 * (high - low);
    std::erase_if(found, [&](double v) { return v < low - slack || v > high + slack; });
    return found;
  }
  std::vector<std::pair<double, std::string>> labels() const {
    const std::vector<double> values = ticks();
    const std::vector<std::string> texts = tick_texts(values);
    std::vector<std::pair<double, std::string>> all;
    for (size_t i = 0; i < values.size(); ++i) all.emplace_back(values[i], texts[i]);
    return all;
  }
};

bool is_shown(const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second);
}

// The axis over all values that pick() gives; a tenth of room around a logarithmic one.
template <class Pick>
Axis axis_over(const Chart& chart, bool log, const Pick& pick) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const ChartLine& line : chart.lines) {
    for (const auto& point : line.points) {
      if (!is_shown(point)) continue;
      low = std::min(low, pick(point));
      high = std::max(high, pick(point));
    }
  }
  if (low > high) low = 0, high = 1;                                             // nothing to show
  if (high - low <= 1e-9 * std::max(std::abs(low), std::abs(high))) high = low;  // but for rounding
  if (low == 0 && high == 0) high = 1;
  if (low == high) low -= 0.5 * std::abs(low) + 1e-3, high += 0.5 * std::abs(high) + 1e-3;
  return {low, high, 0, 0, log && low > 0};
}

std::string path(const ChartLine& line, const Axis& x, const Axis& y) {
  std::string d;
  bool begun = false;
  for (const auto& point : line.points) {
    if (is_shown(point))
      d += fmt::format("{}{:.1f} {:.1f}", begun ? "L" : "M", x.at(point.first), y.at(point.second));
    begun = is_shown(point);
  }
  return d;
}

// Of a line, dots stand where no line leads to.
std::string dots(const ChartLine& line, const Axis& x, const Axis& y) {
  std::string all;
  const auto leads = [&](size_t i) { return i < line.points.size() && is_shown(line.points[i]); };
  for (size_t i = 0; i < line.points.size(); ++i) {
    if (!leads(i)) continue;
    if (line.style != ChartLine::Style::points && (leads(i - 1) || leads(i + 1))) continue;
    all += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3.5' fill='var(--c{})'/>\n",
                       x.at(line.points[i].first), y.at(line.points[i].second), line.colour);
  }
  return all;
}

std::string drawn(const ChartLine& line, const Axis& x, const Axis& y) {
  using Style = ChartLine::Style;
  if (line.style == Style::points) return dots(line, x, y);
  const char* const look = line.style == Style::thin     ? "1' opacity='.35"
                           : line.style == Style::dashed ? "2' stroke-dasharray='6 4"
                                                         : "2.2' stroke-linejoin='round";
  return fmt::format("<path d='{}' fill='none' stroke='var(--c{})' stroke-width='{}'/>\n",
                     path(line, x, y), line.colour, look) +
         dots(line, x, y);
}

std::string axes(const Chart& chart, const Axis& x, const Axis& y) {
  std::string out;
  for (const auto& [v, text] : y.labels())
    out += fmt::format(
        "<line x1='{0:.1f}' x2='{1:.1f}' y1='{2:.1f}' y2='{2:.1f}' stroke='var(--line)'/>"
        "<text class='tick' x='{3:.1f}' y='{4:.1f}' text-anchor='end'>{5}</text>\n",
        x.from, x.to, y.at(v), x.from - 8, y.at(v) + 4, text);
  for (const auto& [v, text] : x.labels())
    out += fmt::format("<text class='tick' x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>\n",
                       x.at(v), y.from + 20, text);
  return out +
         fmt::format(
             "<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>\n"
             "<text transform='translate(16 {:.1f}) rotate(-90)' text-anchor='middle'>{}</text>\n",
             (x.from + x.to) / 2, y.from + 42, escaped(chart.x_label), (y.from + y.to) / 2,
             escaped(chart.y_label));
}

// What a legend names: lines that have points.
bool is_named(const ChartLine& line) {
  return !line.name.empty() &&
         std::any_of(line.points.begin(), line.points.end(),
                     [](const auto& point) { return std::isfinite(point.second); });
}

// In a row above the axes, so that it hides nothing.
std::string legend(const Chart& chart, double left, double y) {
  constexpr double kLetter = 7;  // about as wide as one
  const Axis pixels{0, 1, 0, 1};
  std::string out;
  for (const ChartLine& line : chart.lines) {
    if (!is_named(line)) continue;
    out += drawn(
        {{}, line.style, line.colour, {{left, y - 4}, {left + 13, y - 4}, {left + 26, y - 4}}},
        pixels, pixels);
    out += fmt::format("<text x='{:.1f}' y='{:.1f}'>{}</text>\n", left + 34, y, escaped(line.name));
    left += 58 + kLetter * static_cast<double>(line.name.size());
  }
  return out;
}

}  // namespace

std::string chart_svg(const Chart& chart, int width, int height) {
  Axis x = axis_over(chart, false, [](const auto& point) { return point.first; });
  Axis y = axis_over(chart, chart.log_y, [](const auto& point) { return point.second; });
  if (y.log) y.low /= 1.1, y.high *= 1.1;
  x.from = 64, x.to = width - 16;
  y.from = height - 56, y.to = 64;
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' class='chart' viewBox='0 0 {0} {1}' width='{0}' "
      "height='{1}' role='img'>\n<title>{2}</title>\n{3}"
      "<rect width='{0}' height='{1}' fill='var(--back)'/>\n"
      "<text x='{4:.1f}' y='24' style='font-weight:bold'>{5}</text>\n",
      width, height, escaped(chart.title), kStyle, x.from,
      escaped(middle_cut(chart.title, static_cast<size_t>(width - 80) / 9)));
  svg += axes(chart, x, y);
  for (const ChartLine& line : chart.lines) svg += drawn(line, x, y);
  return svg + legend(chart, x.from, 46) + "</svg>\n";
}

namespace {

constexpr std::array<char, 4> kMarks = {'*', '*', '-', 'o'};  // by ChartLine::Style

// A grid of characters, its first line at the top.
class Canvas {
 public:
  Canvas(int columns, int rows)
      : rows_(static_cast<size_t>(rows), std::string(static_cast<size_t>(columns), ' ')) {}

  void put(double x, double y, char mark) {
    const auto column = std::lround(x), row = std::lround(y);
    if (row < 0 || row >= std::ssize(rows_) || column < 0 || column >= std::ssize(rows_[0])) return;
    rows_[static_cast<size_t>(row)][static_cast<size_t>(column)] = mark;
  }
  // Text that begins (or, with `ends`, ends) there; what does not fit is left out.
  void write(double x, double y, const std::string& text, bool ends = false) {
    const double first = ends ? x - static_cast<double>(text.size()) + 1 : x;
    for (size_t i = 0; i < text.size(); ++i) put(first + static_cast<double>(i), y, text[i]);
  }
  void draw(const ChartLine& line, const Axis& x, const Axis& y) {
    const char mark = kMarks[static_cast<size_t>(line.style)];
    double last_x = std::nan(""), last_y = 0;
    for (const auto& [at, value] : line.points) {
      if (!std::isfinite(at) || !std::isfinite(value)) continue;
      const double px = x.at(at), py = y.at(value);
      const double steps = line.style == ChartLine::Style::points || std::isnan(last_x)
                               ? 1
                               : std::ceil(std::max({1.0, px - last_x, std::abs(py - last_y)}));
      for (double i = 1; i <= steps; ++i)
        put(steps == 1 ? px : last_x + (px - last_x) * i / steps,
            steps == 1 ? py : last_y + (py - last_y) * i / steps, mark);
      last_x = px, last_y = py;
    }
  }
  std::string text() const {
    std::string all;
    for (const std::string& row : rows_) all += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
    return all;
  }

 private:
  std::vector<std::string> rows_;
};

// The title and what the marks mean, in lines of so many columns.
std::string heading(const Chart& chart, size_t columns) {
  std::string all, line = printable(chart.title, 4096);
  while (columns_of(line) > columns) {  // a name without a space
    size_t end = 0;
    for (size_t next = 0; columns_of(std::string_view(line).substr(0, next)) <= columns;) {
      end = next;
      if (utf8::next(line, next) == utf8::kInvalid) ++next;
    }
    all += line.substr(0, end) + "\n";
    line.erase(0, end);
  }
  for (const ChartLine& of : chart.lines) {
    if (!is_named(of)) continue;
    const std::string item =
        fmt::format("{} {}", kMarks[static_cast<size_t>(of.style)], printable(of.name, 4096));
    if (columns_of(line) + 3 + columns_of(item) > columns) {
      all += line + "\n";
      line = item;
    } else {
      line += "   " + item;
    }
  }
  return all + line + "\n";
}

}  // namespace

std::string chart_text(const Chart& chart, int columns, int rows) {
  Axis x = axis_over(chart, false, [](const auto& point) { return point.first; });
  Axis y = axis_over(chart, chart.log_y, [](const auto& point) { return point.second; });
  x.from = 8, x.to = columns - 2;
  y.from = rows - 3, y.to = 2;
  Canvas canvas(columns, rows);
  canvas.write(0, 1, chart.y_label);
  for (const auto& [v, text] : y.labels()) canvas.write(6, y.at(v), text, true);
  for (int row = 2; row <= rows - 3; ++row) canvas.put(7, row, '|');
  for (int column = 7; column < columns; ++column) canvas.put(column, rows - 2, '-');
  double free = static_cast<double>(chart.x_label.size());  // where the last label ends
  for (const auto& [v, text] : x.labels()) {
    const double end = std::round(x.at(v));
    const double begin = end - static_cast<double>(text.size()) + 1;
    if (begin <= free) continue;
    canvas.write(end, rows - 1, text, true);
    free = end + 1;
  }
  canvas.write(0, rows - 1, chart.x_label);
  for (const bool points : {false, true})  // these above the lines, and the first line above others
    for (auto line = chart.lines.rbegin(); line != chart.lines.rend(); ++line)
      if (!line->name.empty() && (line->style == ChartLine::Style::points) == points)
        canvas.draw(*line, x, y);
  return heading(chart, static_cast<size_t>(columns)) +
         canvas.text().substr(1);  // its first is empty
}

std::vector<std::pair<double, double>> smoothed(
    const std::vector<std::pair<double, double>>& points, double span) {
  std::vector<std::pair<double, double>> means;
  double sum = 0, weight = 0, last = 0;
  for (const auto& [x, y] : points) {
    if (!std::isfinite(y)) continue;
    const double kept = weight == 0 ? 0 : std::exp(-(x - last) / span);
    sum = kept * sum + y;
    weight = kept * weight + 1;
    last = x;
    means.emplace_back(x, sum / weight);
  }
  return means;
}

}  // namespace ink
