// What `inkling report` writes: curves that lie where the numbers say, and the numbers themselves.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "error_of.h"
#include "run_program.h"
#include "temp_files.h"
#include "train/report/metrics.h"

namespace ink {
namespace {

// The numbers of a path or of dots, in the order of the SVG.
std::vector<std::pair<double, double>> pixels(const std::string& svg, const std::string& pattern) {
  std::vector<std::pair<double, double>> found;
  const std::regex point(pattern);
  for (std::sregex_iterator at(svg.begin(), svg.end(), point), end; at != end; ++at)
    found.emplace_back(std::stod((*at)[1]), std::stod((*at)[2]));
  return found;
}

TEST(Chart, PointsLieWhereTheirValuesSay) {
  Chart chart{"a < b", "x", "y", {}};
  chart.lines.push_back({"one", ChartLine::Style::line, 0, {{0, 1}, {5, 10}, {10, 100}}});
  chart.lines.push_back({"two", ChartLine::Style::points, 1, {{2.5, 10}}});
  const std::string svg = chart_svg(chart, 400, 200);
  const auto line = pixels(svg, "[ML]([0-9.]+) ([0-9.]+)");
  ASSERT_GE(line.size(), 3u);
  EXPECT_NEAR(line[1].first, (line[0].first + line[2].first) / 2, 0.11);
  EXPECT_NEAR(line[1].second, (line[0].second + line[2].second) / 2, 0.11);  // a decade each
  EXPECT_GT(line[0].second, line[2].second);
  const auto dots = pixels(svg, "cx='([0-9.]+)' cy='([0-9.]+)'");
  ASSERT_EQ(dots.size(), 4u);  // and three in the legend
  EXPECT_NEAR(dots[0].first, (line[0].first + line[1].first) / 2, 0.11);
  EXPECT_NEAR(dots[0].second, line[1].second, 0.11);
  EXPECT_NE(svg.find(">a &lt; b<"), std::string::npos);
  for (const char* tick : {">1<", ">10<", ">100<", ">5<"})
    EXPECT_NE(svg.find(tick), std::string::npos) << tick;
}

TEST(Chart, WhatIsNotFiniteIsAGap) {
  Chart chart{"", "", "", {}};
  const double nan = std::nan("");
  chart.lines.push_back(
      {"", ChartLine::Style::line, 0, {{0, 1}, {1, 2}, {2, nan}, {3, 2}, {4, 1}}});
  const std::string svg = chart_svg(chart);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(pixels(svg, "M([0-9.]+) ([0-9.]+)").size(), 2u);
  for (const auto& lines : {std::vector<ChartLine>{}, {{"", ChartLine::Style::line, 0, {{3, 0}}}}})
    EXPECT_EQ(chart_svg({"", "", "", lines}).find("nan"), std::string::npos);
}

TEST(Chart, InCharacters) {
  Chart chart{"Title", "step", "loss", {}};
  chart.lines.push_back({"a", ChartLine::Style::line, 0, {{0, 100}, {10, 1}}});
  chart.lines.push_back({"b", ChartLine::Style::points, 1, {{5, 10}}});
  const std::string text = chart_text(chart, 40, 12);
  std::vector<std::string> rows;
  std::istringstream lines(text);
  for (std::string row; std::getline(lines, row);) rows.push_back(row);
  ASSERT_EQ(rows.size(), 12u);
  EXPECT_EQ(rows[0], "Title   * a   o b");
  for (const std::string& row : rows) EXPECT_LE(row.size(), 40u);
  EXPECT_EQ(rows[2].find('*'), 8u);    // the highest, at the left
  EXPECT_EQ(rows[9].rfind('*'), 38u);  // the lowest, at the right
  EXPECT_NE(text.find('o'), std::string::npos);
  for (const auto& empty : {std::vector<ChartLine>{}, {{"", ChartLine::Style::line, 0, {{3, 0}}}}})
    EXPECT_EQ(chart_text({"", "", "", empty}).find("nan"), std::string::npos);
}

TEST(Chart, SmoothingIsAMovingAverage) {
  const auto means = smoothed({{0, 4}, {1, 2}, {2, 6}}, 1);
  const double e = std::exp(-1.0);
  ASSERT_EQ(means.size(), 3u);
  EXPECT_DOUBLE_EQ(means[0].second, 4);
  EXPECT_DOUBLE_EQ(means[1].second, (4 * e + 2) / (e + 1));
  EXPECT_DOUBLE_EQ(means[2].second, (4 * e * e + 2 * e + 6) / (e * e + e + 1));
}

TEST(Report, ReadsTheMetricsOfARun) {
  const TempFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  std::ofstream(file) << R"({"step":10,"train_loss":2.5,"lr":0.01,"ms":3.0}
no metrics
{"step":20,"train_loss":null,"lr":0.02,"ms":3.5}
{"step":20,"val_loss":1.5,"best_possible":0.5,"elapsed_s":7.5}
{"step":20,"sample":"samples/step_000020.txt"}
{"step":21,"sample":"samples/step_000020.txt"}
{"step":21,"sample":"../step_000021.txt"}
{"step":30,"train_loss":2,"elapsed_s":8,"memory_mb":60.5,"skipped":3}
)";
  const auto steps = read_metrics(file);
  ASSERT_EQ(steps.size(), 5u);
  EXPECT_EQ(steps[3].sample, "samples/step_000020.txt");
  EXPECT_EQ(metrics_csv(steps),
            "step,train_loss,val_loss,best_possible,lr,grad_norm,tokens_per_s,ms,elapsed_s,skipped,"
            "memory_mb\n"
            "10,2.5,,,0.01,,,3,,,\n20,,,,0.02,,,3.5,,,\n20,,1.5,0.5,,,,,7.5,,\n"
            "30,2,,,,,,,8,3,60.5\n");
  const Chart chart = loss_chart(steps, "t");
  ASSERT_EQ(chart.lines.size(), 4u);
  EXPECT_EQ(chart.lines[0].name, "training loss");
  EXPECT_EQ(chart.lines[2].points, (std::vector<std::pair<double, double>>{{20, 1.5}}));
  EXPECT_EQ(chart.lines[3].points, (std::vector<std::pair<double, double>>{{10, 0.5}, {20, 0.5}}));
  EXPECT_EQ(chart.lines[1].points.size(), 2u);

  std::ofstream(file) << "\n";
  EXPECT_EQ(error_of([&] { read_metrics(file); }),
            file.string() + ": expected lines of metrics, found none");
}

TEST(Report, InTheProgram) {
  const TempFolder folder;
  folder.write("metrics.jsonl", "{\"step\":10,\"train_loss\":2.5}\n");
  const std::string run = folder.path().string(), svg = (folder / "loss.svg").string();
  const Ran written = run_program("report " + run + " --svg " + svg + " --csv " + run + "/a.csv");
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_EQ(written.out, "Written: " + svg + "\nWritten: " + run + "/a.csv\n");
  EXPECT_NE(run_shell("cat " + svg).out.find("<svg"), std::string::npos);
  EXPECT_EQ(run_program("report " + run).out, "Written: " + run + "/report.html\n");
  const Ran text = run_program("report " + run + " --text");
  EXPECT_NE(text.out.find("* training loss"), std::string::npos) << text.out;
  EXPECT_EQ(run_program("report " + run + " " + run + " --text").code, 2);
  EXPECT_EQ(run_program("report " + run + "/none --svg " + svg).code, 1);
  EXPECT_EQ(run_program("report " + run + " --svg /dev/full").code, 1);
}

}  // namespace
}  // namespace ink
