// What `inkling report` writes: curves that lie where the numbers say, and the numbers themselves.
// And that all that is written is the same whatever locale a program sets.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <limits>
#include <locale>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "autograd/io/log.h"
#include "data/file.h"
#include "nn/batch_norm.h"
#include "nn/linear.h"
#include "tests/support/error_of.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_files.h"
#include "tests/support/terminal.h"
#include "train/cli/command_line.h"
#include "train/flow/draw_flow.h"
#include "train/flow/watch.h"
#include "train/report/events.h"
#include "train/report/look.h"
#include "train/report/metrics.h"
#include "train/report/numbers.h"
#include "train/trainer.h"

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

// 20 steps of 0.1 s took 4 s: another 20 will, too.
TEST(Metrics, WhatIsLeftHasEvaluationsInIt) {
  MetricsTable table;
  EXPECT_FALSE(table.seconds_left(40));
  MetricsStep line;
  line.is_training = true, line.ms = 100;
  for (const int64_t step : {10, 20}) {
    line.step = step, line.elapsed_s = static_cast<double>(step) / 5;
    table.add(line);
  }
  EXPECT_NEAR(table.seconds_left(40).value(), 4, 1e-9);
  EXPECT_EQ(table.seconds_left(20).value(), 0);
  // Resumed with a batch of another size: one second a step.
  table.begin_process(20);
  EXPECT_FALSE(table.seconds_left(40));
  line.step = 30, line.ms = 1000, line.elapsed_s = 14;
  table.add(line);
  EXPECT_NEAR(table.seconds_left(40).value(), 10, 1e-9);
}

TEST(Chart, NoStepIsBelow0) {
  const std::string text =
      chart_text({"t", "step", "loss", {{"a", ChartLine::Style::points, 0, {{0, 2}}}}}, 60, 12);
  EXPECT_EQ(text.find('-' + std::string("0")), std::string::npos) << text;
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
  // A point alone is a dot, a line without points is in no legend, and a long title is cut.
  const Chart few{
      std::string(300, 'x') + "end",
      "",
      "",
      {{"one", ChartLine::Style::line, 0, {{3, 2}}}, {"none", ChartLine::Style::points, 1, {}}}};
  const std::string dot = chart_svg(few);
  EXPECT_EQ(pixels(dot, "cx='([0-9.]+)' cy='([0-9.]+)'").size(), 1u);
  EXPECT_NE(dot.find(">one<"), std::string::npos);
  EXPECT_EQ(dot.find(">none<"), std::string::npos);
  EXPECT_TRUE(std::regex_search(dot, std::regex(">x{20,50}[.]{3}x{20,50}end<")));
  EXPECT_EQ(chart_text(few, 80, 12).find("none"), std::string::npos);
  EXPECT_EQ(middle_cut("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 7), "\xc3\xa9...\xc3\xa9");
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

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Chart, EveryAxisHasLabelsThatDiffer) {
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{{2.1, 4.9},
                                                                        {1.02, 1.98},
                                                                        {0.62, 0.97},
                                                                        {3.00001, 3.00004},
                                                                        {5.1, 5.2},
                                                                        {11, 48},
                                                                        {2.2, 19},
                                                                        {1e-7, 2e9},
                                                                        {1e-300, 1e300},
                                                                        {2, std::nextafter(2, 3)},
                                                                        {1e12, 3e12}}) {
    Chart chart{"t", "step", "loss", {}};
    chart.lines.push_back({"a", ChartLine::Style::line, 0, {{0, low}, {20000, high}}});
    const std::string svg = chart_svg(chart);
    const std::regex label("text-anchor='end'>([0-9.,e-]+)<");
    std::multiset<std::string> labels;
    for (std::sregex_iterator at(svg.begin(), svg.end(), label), end; at != end; ++at)
      labels.insert((*at)[1]);
    EXPECT_GE(labels.size(), 2u) << low << " " << high;
    EXPECT_LE(labels.size(), 12u) << low << " " << high;
    for (const std::string& text : labels) EXPECT_EQ(labels.count(text), 1u) << text;
    const auto rows = lines_of(chart_text(chart, 60, 20));
    const auto labelled = std::count_if(rows.begin() + 2, rows.end() - 2,
                                        [](const std::string& row) { return row[6] != ' '; });
    EXPECT_GE(labelled, 2) << chart_text(chart, 60, 20);
  }
}

TEST(Chart, InFewColumns) {
  Chart chart{"Loss of " + std::string(200, 'x') + "\033[2J\xc3\xa9", "step", "loss", {}};
  for (const char* name : {"training loss", "validation loss", "best possible"})
    chart.lines.push_back({name, ChartLine::Style::line, 0, {}});
  for (int i = 0; i <= 10; ++i) chart.lines[0].points.emplace_back(10000 * i, 1 + i);
  chart.lines[1].points = chart.lines[2].points = {{0, 1}};
  for (const int columns : {44, 60, 80, 120}) {
    const std::string text = chart_text(chart, columns, 20);
    for (const char* name : {"* training loss", "* validation loss", "* best possible"})
      EXPECT_NE(text.find(name), std::string::npos) << text;
    EXPECT_EQ(text.find('\033'), std::string::npos);
    const auto rows = lines_of(text);
    for (const std::string& row : rows) EXPECT_LE(row.size(), size_t(columns) + 1) << row;  // e'
    EXPECT_TRUE(std::regex_match(rows.back(), std::regex("step( +[0-9]{1,3}(,000)?)+"))) << text;
    // The line has no gaps: each column of the chart has a mark.
    for (size_t column = 8; column < size_t(columns) - 2; ++column)
      EXPECT_TRUE(std::any_of(
          rows.begin(), rows.end(),
          [&](const std::string& row) { return column < row.size() && row[column] == '*'; }))
          << column << "\n"
          << text;
  }
}

TEST(Report, NumbersHaveOneForm) {
  for (const auto& [x, text] : std::vector<std::pair<double, std::string>>{{0, "0"},
                                                                           {1, "1"},
                                                                           {0.25, "0.25"},
                                                                           {0.00025, "0.00025"},
                                                                           {0.000025, "2.5e-5"},
                                                                           {-0.000025, "-2.5e-5"},
                                                                           {99999, "99,999"},
                                                                           {-1234567, "-1.235e6"},
                                                                           {-123456, "-123,456"},
                                                                           {1e300, "1e300"},
                                                                           {100, "100"},
                                                                           {1e-10, "1e-10"},
                                                                           {999999.9, "1e6"},
                                                                           {2.5004, "2.5"}})
    EXPECT_EQ(short_number(x), text);
  EXPECT_EQ(short_number(1234.5, 6), "1,234.5");
  EXPECT_EQ(above_best(0.66, 0.6, 1), "10.0 %");
  EXPECT_EQ(above_best(0.54, 0.6, 0), "-10 %");
  // Many times the best possible: no percentage says anything.
  EXPECT_EQ(above_best(4.1, 0.1, 1), "4 nats");
  EXPECT_EQ(above_best(93067.5, 0.001, 1), "93,067 nats");
  EXPECT_EQ(above_best(2, 0, 1), "2 nats");
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
{"step":30,"train_loss":2,"elapsed_s":8,"memory_mb":60.5,"skipped":3,"train_set":77,"steps":4}
)";
  const auto steps = read_metrics(file);
  ASSERT_EQ(steps.size(), 5u);
  EXPECT_EQ(steps[3].sample, "samples/step_000020.txt");
  EXPECT_EQ(metrics_csv(steps),
            "step,train_loss,val_loss,val_bpb,val_answers,val_set,sampled_loss,best_possible,lr,"
            "grad_norm,"
            "tokens_per_s,ms,elapsed_s,skipped,memory_mb,train_set,speed_set,steps,travel_ms,"
            "wait_ms\n"
            "10,2.5,,,,,,,0.01,,,3,,,,,,,,\n20,,,,,,,,0.02,,,3.5,,,,,,,,\n"
            "20,,1.5,,,,,0.5,,,,,7.5,,,,,,,\n30,2,,,,,,,,,,,8,3,60.5,77,,4,,\n");
  const Chart chart = loss_chart(steps, "t");
  ASSERT_EQ(chart.lines.size(), 4u);
  EXPECT_EQ(chart.lines[0].name, "training loss");
  EXPECT_EQ(chart.lines[2].points, (std::vector<std::pair<double, double>>{{20, 1.5}}));
  EXPECT_EQ(chart.lines[3].points,
            (std::vector<std::pair<double, double>>{{10, 0.5}, {20, 0.5}, {30, 0.5}}));
  EXPECT_EQ(chart.lines[1].points.size(), 2u);
  std::vector<MetricsStep> with_whole = steps;
  with_whole.push_back(steps[2]);
  with_whole.back().step = 30, with_whole.back().val_loss = 1.75;
  with_whole.back().sampled_loss = 1.25, with_whole.back().best_possible = 0.75;
  const Chart one_set = loss_chart(with_whole, "t");
  EXPECT_EQ(one_set.lines[2].points,
            (std::vector<std::pair<double, double>>{{20, 1.5}, {30, 1.25}}));
  EXPECT_EQ(one_set.lines[3].points, chart.lines[3].points);

  // What is smoothed is called so.
  std::vector<MetricsStep> many;
  for (int i = 1; i <= 200; ++i) {
    many.push_back(steps[0]);
    many.back().step = i;
  }
  EXPECT_EQ(loss_chart(many, "t").lines[0].name, "training loss, smoothed");

  std::ofstream(file) << "\n";
  EXPECT_EQ(error_of([&] { read_metrics(file); }),
            file.string() + ": expected lines of metrics, found none");
}

// A line that a run wrote is read fast, and one with a space before it as JSON: the same comes out.
TEST(Report, ParsesLines) {
  for (const std::string line :
       {R"({"step":10,"train_loss":2.5001234567890123,"lr":1e-05,"ms":null,"steps":3})",
        R"({"step":1000000000,"val_loss":0.000123456789012345678,"elapsed_s":-7.5E+2})",
        R"({"step":20,"sample":"samples/step_000020.txt"})",
        R"({"step":7,"train_loss":null})",
        R"({"step":20,"error":"a \"word\""})",
        R"( { "step" : 3 } )",
        R"({"step":3,"foo":[1]})",
        R"({"step":20,"sample":"samples/step_000021.txt"})",
        R"({"step":-0})",
        R"({"step":1.5})",
        R"({"step":1,"step":2})",
        R"({"step":1,"ms":1,"ms":2})",
        R"({"step":"x"})",
        R"({"ms":1})",
        R"({"step":18446744073709551615})",
        R"({"step":2,"lr":1e400})",
        R"({"step":2)",
        "",
        "{}",
        R"({"step":2,"lr":-})",
        R"({"step":2,"lr":12345678901234567890123})",
        "{\"step\":20,\"t\xea]\":2.5}",
        "{\"step\":20,\"t\tb\":2.5}",
        "{\"step\":20,\"t\u00e9\":2.5}",
        "no metrics"}) {
    const auto exact = parse_metrics(" " + line), quick = parse_metrics(line);
    ASSERT_EQ(exact.has_value(), quick.has_value()) << line;
    if (!exact) continue;
    EXPECT_EQ(exact->step, quick->step) << line;
    EXPECT_EQ(exact->sample + exact->error, quick->sample + quick->error) << line;
    EXPECT_EQ(exact->is_training, quick->is_training) << line;
    EXPECT_EQ(exact->is_validation, quick->is_validation) << line;
    for (const auto column : {&MetricsStep::train_loss, &MetricsStep::val_loss, &MetricsStep::lr,
                              &MetricsStep::ms, &MetricsStep::elapsed_s}) {
      EXPECT_EQ(*exact.*column, *quick.*column) << line;
    }
  }
  EXPECT_EQ(parse_metrics(R"({"step":20,"error":"a \"word\""})")->error, "a \"word\"");
  const auto step = parse_metrics(R"({"step":20,"train_loss":2.5001234567890123,"ms":null})");
  EXPECT_EQ(step->step, 20);
  EXPECT_EQ(step->train_loss, 2.5001234567890123);
  EXPECT_FALSE(step->ms);
  EXPECT_TRUE(step->is_training && !step->is_validation);
  for (const char* none : {R"({"step":1,"step":2})", R"({"step":1,"ms":1,"ms":2})", R"({"ms":1})",
                           R"({"step":1.5})", R"({"step":2,"lr":"x"})", R"({"step":2,"lr":true})"})
    EXPECT_FALSE(parse_metrics(none)) << none;
}

// Neighbours are joined, so that any number of lines takes the memory of 6,000.
TEST(Report, ATableOfManyLines) {
  MetricsTable table;
  for (int64_t step = 1; step <= 50'000; ++step) {
    MetricsStep line;
    line.step = step;
    line.is_training = true;
    if (step != 50'000) line.train_loss = static_cast<double>(step);  // at last not finite
    line.lr = 1.0 / static_cast<double>(step);
    table.add(line);
  }
  const auto columns = table.training();
  const size_t rows = columns.at("step").size();
  EXPECT_GT(rows, 1400u);
  EXPECT_LE(rows, 3000u);
  EXPECT_EQ(columns.at("step").back(), 50'000);
  const auto joined = columns.at("step").at(0).get<int64_t>();
  EXPECT_EQ(columns.at("train_loss").at(0), (1 + static_cast<double>(joined)) / 2) << "a mean";
  EXPECT_NEAR(columns.at("lr").at(1).get<double>(), 0.5 / static_cast<double>(joined), 1e-6);
  EXPECT_EQ(table.last_step(), 50'000);
}

// What stands out of a long log stays in it.
TEST(Report, ATableOfManyLinesKeepsExtremes) {
  MetricsTable table;
  for (int64_t step = 1; step <= 12'001; ++step) {
    MetricsStep line;
    line.step = step;
    line.is_training = true;
    line.grad_norm = step == 5001 || step == 9003 ? 100 : 1;
    table.add(line);
    line = MetricsStep();
    line.step = step;
    line.is_validation = true;
    line.val_loss = step == 12'001 ? 4 : step == 5002 ? 0.5 : step < 100 ? 0.1 : 2;
    line.val_set = step < 100 ? 1 : 2;
    if (step == 4001 || step == 5002) line.sampled_loss = step == 4001 ? 9 : 0.75;
    table.add(line);
  }
  const auto training = table.training().at("grad_norm").get<std::vector<double>>();
  EXPECT_EQ(std::count(training.begin(), training.end(), 100.0), 2);
  const auto all = table.validation();
  const auto losses = all.at("val_loss").get<std::vector<double>>();
  EXPECT_LE(losses.size(), 3001u);
  const auto lowest = std::find(losses.begin(), losses.end(), 0.5) - losses.begin();
  ASSERT_LT(lowest, std::ssize(losses));
  EXPECT_EQ(all.at("step").at(static_cast<size_t>(lowest)), 5002);
  EXPECT_EQ(all.at("sampled_loss").at(static_cast<size_t>(lowest)), 0.75);
  EXPECT_EQ(losses.back(), 4);
  EXPECT_EQ(all.at("step").back(), 12'001);
  EXPECT_EQ(table.last_validation()->step, 12'001);
  // A row has the numbers of one evaluation.
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_TRUE(all.at("sampled_loss").at(i).is_null() || all.at("step").at(i) == 5002);
  EXPECT_GE(table.joined_training(), 4);
}

// ---- event files

// The checksum bit by bit.
uint32_t slow_crc(const std::string& bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const bool odd = ((crc ^ (static_cast<uint8_t>(c) >> bit)) & 1) != 0;
      crc = (crc >> 1) ^ (odd ? 0x82F63B78u : 0u);
    }
  return ~crc;
}

// Reads numbers of `bytes` one after the other.
struct Bytes {
  std::string bytes;
  size_t at = 0;

  bool ended() const { return at >= bytes.size(); }
  std::string take(size_t count) {
    if (at + count > bytes.size()) throw std::runtime_error("the end is missing");
    at += count;
    return bytes.substr(at - count, count);
  }
  uint64_t fixed(size_t count) {
    uint64_t value = 0;
    const std::string taken = take(count);
    for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<uint8_t>(taken[i]);
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0, byte = 128;
    for (int shift = 0; byte >= 128; shift += 7) {
      byte = fixed(1);
      value |= (byte & 127) << shift;
    }
    return value;
  }
};

// The fields of a message by number; numbers as their bits.
std::multimap<uint64_t, std::string> fields_of(const std::string& message) {
  std::multimap<uint64_t, std::string> fields;
  Bytes in{message};
  while (!in.ended()) {
    const uint64_t key = in.varint(), stored = key & 7;
    fields.emplace(key >> 3, stored == 0   ? std::to_string(in.varint())
                             : stored == 1 ? in.take(8)
                             : stored == 5 ? in.take(4)
                                           : in.take(in.varint()));
  }
  return fields;
}

struct Logged {
  double wall_time = 0;
  std::string version, step;
  std::map<std::string, float> scalars;
  std::map<std::string, std::string> texts;
};

std::vector<Logged> logged_in(const std::string& file) {
  const auto checked = [](Bytes& in, const std::string& bytes) {
    const uint32_t crc = slow_crc(bytes);
    EXPECT_EQ(in.fixed(4), ((crc >> 15) | (crc << 17)) + 0xa282ead8u);
    return bytes;
  };
  std::vector<Logged> all;
  for (Bytes in{file}; !in.ended();) {
    Bytes length{checked(in, in.take(8))};
    const auto event = fields_of(checked(in, in.take(length.fixed(8))));
    Logged logged;
    logged.wall_time = std::bit_cast<double>(Bytes{event.find(1)->second}.fixed(8));
    if (event.contains(3)) logged.version = event.find(3)->second;
    if (event.contains(2)) logged.step = event.find(2)->second;
    if (event.contains(5))
      for (const auto& [number, bytes] : fields_of(event.find(5)->second)) {
        const auto value = fields_of(bytes);
        const std::string tag = value.find(1)->second;
        if (value.contains(2))
          logged.scalars[tag] =
              std::bit_cast<float>(static_cast<uint32_t>(Bytes{value.find(2)->second}.fixed(4)));
        if (value.contains(8)) {
          const auto tensor = fields_of(value.find(8)->second);
          EXPECT_EQ(tensor.find(1)->second, "7");  // of strings
          logged.texts[tag] = tensor.find(8)->second;
        }
      }
    all.push_back(std::move(logged));
  }
  return all;
}

TEST(Events, ChecksumsOfRFC3720) {
  std::string up, down;
  for (int i = 0; i < 32; ++i) up += static_cast<char>(i), down += static_cast<char>(31 - i);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(up), 0x46dd794eu);
  EXPECT_EQ(crc32c(down), 0x113fdb5cu);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(Events, TheBytesThatTensorBoardWrites) {
  const std::string file =
      first_event_record(1.5) +
      event_record({2.25, 300, {{"train/loss", 0.1}}, {{"samples", "    Hi\n"}}});
  std::string hex;
  for (const char c : file)
    for (const int shift : {4, 0}) hex += "0123456789abcdef"[static_cast<uint8_t>(c) >> shift & 15];
  EXPECT_EQ(
      hex,
      "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c490000"
      "000000000036250ea309000000000000024010ac022a3b0a110a0a747261696e2f6c6f737315cdcccc3d0a"
      "260a0773616d706c65734211080712041202080142072020202048690a4a080a060a0474657874d58eeda1");
  const auto large =
      logged_in(event_record({0, int64_t{1} << 40, {{"a", 1e300}, {"b", -1e300}}, {}}));
  EXPECT_EQ(large.at(0).step, "1099511627776");
  EXPECT_EQ(large.at(0).scalars.at("a"), std::numeric_limits<float>::infinity());
  EXPECT_EQ(large.at(0).scalars.at("b"), -std::numeric_limits<float>::infinity());
}

TEST(Events, OfRuns) {
  namespace fs = std::filesystem;
  const TempFolder folder;
  const fs::path run = folder / "run", board = folder / "board";
  fs::create_directories(run / "samples");
  const std::string lines =
      R"({"step":10,"train_loss":2.5,"lr":0.01,"elapsed_s":1.5}
{"step":20,"train_loss":null,"lr":0.02,"elapsed_s":3}
no metrics
{"step":20,"error":"no number"}
{"step":20,"val_loss":1.5,"val_bpb":2.25,"best_possible":0.5,"elapsed_s":3.5}
{"step":20,"sample":"samples/step_000020.txt"}
)";
  std::ofstream(run / "metrics.jsonl") << lines;
  std::ofstream(run / "samples/step_000020.txt") << "# Once\n<b>upon</b>\n\033[2J";
  std::ofstream(run / "run.json") << R"({"started":"2026-11-26 06:40:12"})";
  const std::string write = "report " + run.string() + " --tensorboard " + board.string();
  const fs::path file = board / "events.out.tfevents.inkling";
  const Ran written = run_program(write);
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_EQ(written.out, "Written: " + file.string() + "\n");
  EXPECT_FALSE(fs::exists(run / "report.html"));
  const std::string bytes = read_file(file);
  const auto events = logged_in(bytes);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[1].step, "10");
  EXPECT_EQ(events[1].wall_time, events[0].wall_time + 1.5);
  EXPECT_GT(events[0].wall_time, 1.79e9);  // in the year 2026
  EXPECT_EQ(events[1].scalars,
            (std::map<std::string, float>{
                {"train/loss", 2.5f}, {"train/lr", 0.01f}, {"train/elapsed_s", 1.5f}}));
  EXPECT_FALSE(events[2].scalars.contains("train/loss"));
  EXPECT_EQ(events[3].scalars, (std::map<std::string, float>{{"val/loss", 1.5f},
                                                             {"val/bpb", 2.25f},
                                                             {"val/best_possible", 0.5f},
                                                             {"val/elapsed_s", 3.5f}}));
  EXPECT_EQ(events[4].texts.at("samples"), "    # Once\n    <b>upon</b>\n    \\x1b[2J\n");
  EXPECT_EQ(events[4].wall_time, events[3].wall_time);

  // Written again: the same. The run goes on: its file grows, for readers that have it open.
  EXPECT_EQ(run_program(write).code, 0);
  EXPECT_EQ(read_file(file), bytes);
  std::ifstream reader(file, std::ios::binary);
  reader.seekg(std::ssize(bytes));
  std::ofstream(run / "metrics.jsonl", std::ios::app) << R"({"step":30,"train_loss":1})"
                                                      << "\n";
  EXPECT_EQ(run_program(write).code, 0);
  const std::string more{std::istreambuf_iterator<char>(reader), {}};
  EXPECT_EQ(read_file(file), bytes + more);
  EXPECT_EQ(logged_in(more).at(0).scalars.at("train/loss"), 1);
  // A run that began anew, or a damaged file: replaced.
  std::ofstream(run / "metrics.jsonl") << R"({"step":1,"train_loss":7})"
                                       << "\n";
  EXPECT_EQ(run_program(write).code, 0);
  EXPECT_EQ(logged_in(read_file(file)).size(), 2u);
  EXPECT_EQ(std::distance(fs::directory_iterator(board), fs::directory_iterator()), 1);

  // Several runs have folders, each its own.
  const Ran several = run_program("report " + run.string() + " " + run.string() +
                                  "/. --tensorboard " + (folder / "many").string());
  EXPECT_EQ(several.code, 0) << several.err;
  for (const char* name : {"run", "run (2)"})
    EXPECT_EQ(logged_in(read_file(folder / "many" / name / "events.out.tfevents.inkling")).size(),
              2u);
  // Of two folders with one name, those above tell them apart.
  for (const char* name : {"a", "b"}) {
    fs::create_directories(folder / name);
    fs::copy(run, folder / name / "run", fs::copy_options::recursive);
  }
  std::ofstream(folder / "b/run/metrics.jsonl")
      << R"({"step":20,"val_loss":1.5,"val_set":7,"sampled_loss":1.25,"elapsed_s":3.5})"
      << "\n";
  EXPECT_EQ(run_program("report " + (folder / "a/run").string() + " " +
                        (folder / "b/run").string() + " --tensorboard " + (folder / "two").string())
                .code,
            0);
  EXPECT_EQ(logged_in(read_file(folder / "two/a/run/events.out.tfevents.inkling")).size(), 2u);
  // A curve is of the same batches; that of the whole set stands beside it.
  EXPECT_EQ(logged_in(read_file(folder / "two/b/run/events.out.tfevents.inkling")).at(1).scalars,
            (std::map<std::string, float>{
                {"val/loss", 1.25f}, {"val/whole_loss", 1.5f}, {"val/elapsed_s", 3.5f}}));
  // Nothing is written where one of them is no run, or where the folder is a file.
  const Ran none = run_program("report " + run.string() + " " + folder.path().string() +
                               " --tensorboard " + (folder / "none").string());
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.err.find("metrics.jsonl"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder / "none"));
  const Ran onto =
      run_program("report " + run.string() + " --tensorboard " + run.string() + "/metrics.jsonl");
  EXPECT_EQ(onto.code, 2);
  EXPECT_NE(onto.err.find("--tensorboard: expected a folder, " + run.string() + "/metrics.jsonl"),
            std::string::npos)
      << onto.err;
  EXPECT_EQ(run_program("report " + run.string() + " --tensorboard ''").code, 2);
}

TEST(Report, FitsTheTerminal) {
  if (!has_terminals()) GTEST_SKIP() << "no terminal can be made here";
  const TempFolder folder;
  std::string metrics;
  for (int step = 10; step <= 1000; step += 10)  // rises, so that something stands out
    metrics += "{\"step\":" + std::to_string(step) +
               ",\"train_loss\":" + std::to_string(1 + step / 300.0) + "}\n";
  folder.write("metrics.jsonl", metrics + "{\"step\":1000,\"val_loss\":3}\n");
  for (const unsigned short columns : {44, 60, 80, 100, 120}) {
    const auto shown =
        run_on_terminal("\"$INKLING_PROGRAM\" report --text " + folder.path().string(), columns);
    std::string words;
    size_t widest = 0;
    for (const Shown& line : shown) {
      EXPECT_LT(line.text.size(), columns) << line.text;
      widest = std::max(widest, line.text.size());
      words += line.text.substr(std::min(line.text.find_first_not_of(' '), line.text.size())) + " ";
    }
    EXPECT_EQ(widest + 1, columns);
    EXPECT_NE(words.find("the learning rate may be too high"), std::string::npos) << words;
    for (const char* name : {"* training loss", "o validation loss"})
      EXPECT_NE(words.find(name), std::string::npos) << words;
  }
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
  const std::string all = folder.write("all.csv", "first\n").string();  // what it holds stays
  for (const char* here : {" --csv /dev/stdout >>", " --csv /dev/fd/5 5>>"})
    EXPECT_EQ(run_shell("inkling report " + run + here + all).code, 0);
  EXPECT_EQ(run_shell("cut -d, -f1,2 " + all).out,
            "first\nstep,train_loss\n10,2.5\nstep,train_loss\n10,2.5\n");
  const Ran text = run_program("report " + run + " --text");
  EXPECT_NE(text.out.find("* training loss"), std::string::npos) << text.out;
  EXPECT_EQ(run_program("report " + run + " " + run + " --text").code, 2);
  EXPECT_EQ(run_program("report " + run + "/none --svg " + svg).code, 1);
  const Ran full = run_program("report " + run + " --svg /dev/full");
  EXPECT_EQ(full.code, 1);
  EXPECT_NE(full.err.find("--svg: /dev/full: "), std::string::npos) << full.err;
  EXPECT_EQ(run_program("report " + run + " --csv -").out, run_shell("cat " + run + "/a.csv").out);
}

// ---- locales

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Texts = std::map<std::string, std::string>;

// 1.234,5
struct Punctuation : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
  std::string do_truename() const override { return "wahr"; }
};

// While it lives, the program has this locale. A named one is that of C's functions, too.
class Under {
 public:
  explicit Under(const std::locale& locale)
      : before_(std::locale::global(locale)), of_out_(std::cout.imbue(locale)) {}
  ~Under() {
    std::locale::global(before_);
    std::cout.imbue(of_out_);
  }

 private:
  std::locale before_, of_out_;
};

std::string printed_by(const std::function<void()>& f) {
  testing::internal::CaptureStdout();
  f();
  std::cout.flush();
  return testing::internal::GetCapturedStdout();
}

// The output of inkling in this process, and its exit code.
std::string run_here(const std::string& line) {
  std::istringstream text("inkling " + line);
  std::vector<std::string> words{std::istream_iterator<std::string>(text), {}};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return printed_by([&] {
    const int code = run_command_line(static_cast<int>(argv.size()), argv.data());
    print("code", code);
  });
}

constexpr const char* kSmall =
    " --n_layer 1 --n_head 2 --n_embd 32 --block_size 32 --batch_size 4 --eval_iters 1"
    " --learning_rate 0.00125 --dropout 0.25";

// Times and rates differ: what is left are the signs around them.
std::string without_numbers(const std::string& text) {
  return std::regex_replace(text, std::regex("[0-9]+([.][0-9]+)?(e-[0-9]+)?"), "#");
}

// The files of a run, by their names. Those with times are compared without numbers.
void add_files(Texts& texts, const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = entry.path().lexically_relative(folder).string();
    const bool timed = name == "metrics.jsonl" || name == "report.html" || name == "run.json";
    const std::string text = read_file(entry.path());
    texts[name] = timed ? without_numbers(text) : text;
  }
}

// What the library writes and prints.
Texts texts_of_the_library(const TempFolder& folder) {
  Texts texts;
  manual_seed(1);
  const auto add = [&](const std::string& name, const auto&... values) {
    std::ostringstream out;  // a stream of the program's own
    (out << ... << values);
    texts[name] = out.str();
  };
  const Tensor x = randn({2, 1100}, f64).requires_grad_();
  add("error", error_of([&] { matmul(x, ones({4000, 2}, f64)); }));
  add("error with a number", error_of([&] { dropout(x, 1234.5); }));
  add("tensors", x, tensor({1234567.5, 0.25}), arange(12345).narrow(0, 12000, 3),
      ones({1, 2000, 0}));
  add("shapes", x.shape(), Scalar(1234567), Scalar(1234.5), f32, Device{Device::CUDA, 1});
  texts["print"] = printed_by([&] {
    print(x.shape(), 1234567, 1234.5, true, std::vector<int>{1000, 2000}, x.select(0, 0));
  });
  Profiler profiler;
  profiler.trace(true);
  Tensor loss;
  {
    const Observe observe(profiler);
    loss = sum(exp(x));
  }
  profiler.save_trace(folder / "trace.json");
  const Json trace = Json::parse(read_file(folder / "trace.json"));
  EXPECT_EQ(trace.at(1).at("args").at("bytes_written"), 8 * x.numel());
  texts["trace"] = without_numbers(trace.dump());
  add("graph", print_graph(loss), to_dot(loss));
  add("modules", Linear(1500, 2000), LayerNorm({1, 2000}, 1.5e-5), BatchNorm1d(3000, 0.25));
  set_log_callback([&](const std::string& message) { texts["log"] = message; });
  log_message("step ", 1234567, " of ", 1234.5);
  set_log_callback({});
  const Linear layer(1200, 2);
  const Tensor ids = randn({3, 1200});
  add("watch", watch(layer, [&] { return sum(layer(ids)); }));
  const auto wrong = [](const auto& in) {
    return sum(in[0] * 1234567) + sum(in[0].detach() * in[0].detach());
  };
  add("gradcheck", gradcheck(wrong, {x}));
  WrongGradient of_exp;
  of_exp.op = "exp", of_exp.output = {1000}, of_exp.input = 1000, of_exp.analytic = 1234.5;
  add("wrong gradient", of_exp);
  Flow flow(layer);
  {
    const Observe observe(flow);
    sum(layer(ids)).backward();
  }
  std::vector<FlowOp> ops = flow.ops();
  for (FlowOp& op : ops) op.forward_ms = op.backward_ms = 1234.5, op.bytes_kept = 123456789;
  add("flow", print_flow(ops), flow_to_dot(ops));
  Chart chart{
      "title", "x", "y", {{"one", ChartLine::Style::line, 0, {{0, 1.5}, {10000, 2000.25}}}}};
  MetricsStep step;
  step.step = 1234567, step.train_loss = 1234.5, step.lr = 0.00125;
  add("metrics", metrics_csv({step}));
  add("chart", chart_svg(chart), chart_text(chart), shortened(1234.5678).dump(), shortened(0.125));
  return texts;
}

// A run with all that it leaves, and what the program shows of it.
Texts texts_of_a_run(const fs::path& folder) {
  fs::remove_all(folder);
  Texts texts;
  const std::string out = " --out_dir " + folder.string(), to = " " + folder.string();
  const std::string trained =
      run_here("train --max_iters 4 --eval_interval 2 --final_eval off" + out + kSmall);
  EXPECT_NE(trained.find("code 0\n"), std::string::npos) << trained;
  for (const std::string& line :
       {"report" + to + " --csv" + to + "/metrics.csv --svg" + to + "/loss.svg",
        "report" + to + " --text", "sample --temperature 0.75 --max_new_tokens 20" + out,
        "look" + out + " --out" + to + "/look.html", std::string("train --help"),
        std::string("gradcheck --only softmax"), std::string("train --learning_rate 0,0015")})
    texts[line] = run_here(line);
  add_files(texts, folder);
  texts["metrics.csv"] = without_numbers(texts["metrics.csv"]);
  return texts;
}

void expect_same(const Texts& found, const Texts& expected) {
  for (const auto& [name, text] : expected) {
    const auto other = found.find(name);
    if (other == found.end()) {
      ADD_FAILURE() << name << " is missing";
      continue;
    }
    if (other->second == text) continue;
    const auto [a, b] =
        std::mismatch(text.begin(), text.end(), other->second.begin(), other->second.end());
    const auto near = [](const std::string& all, auto at) {
      const size_t begin = static_cast<size_t>(std::max<ptrdiff_t>(at - all.begin() - 60, 0));
      return all.substr(begin, 120);
    };
    ADD_FAILURE() << name << ": " << near(other->second, b) << "\nexpected: " << near(text, a);
  }
  EXPECT_EQ(found.size(), expected.size());
}

// Locales with other signs: made here, and, where the system can make it, one of C's functions.
std::vector<std::locale> odd_locales([[maybe_unused]] const TempFolder& folder) {
  std::vector<std::locale> locales{std::locale(std::locale::classic(), new Punctuation)};
#ifndef __SANITIZE_ADDRESS__  // glibc never frees the folders of LOCPATH
  const std::string made = (folder / "de_DE.UTF-8").string();
  if (std::system(("localedef -i de_DE -f UTF-8 '" + made + "' >/dev/null 2>&1").c_str()) <= 256) {
    setenv("LOCPATH", folder.path().c_str(), 1);
    try {
      locales.emplace_back("de_DE.UTF-8");
    } catch (const std::runtime_error&) {  // not made
    }
    unsetenv("LOCPATH");
  }
#endif
  return locales;
}

TEST(Locales, ChangeNothingThatIsWritten) {
  const TempFolder folder;
  const Texts library = texts_of_the_library(folder), run = texts_of_a_run(folder / "run");
  ASSERT_EQ(run.count("ckpt/state.json") + run.count("best/config.json"), 2u);
  for (const std::locale& locale : odd_locales(folder)) {
    SCOPED_TRACE(locale.name());
    const Under odd(locale);
    expect_same(texts_of_the_library(folder), library);
    expect_same(texts_of_a_run(folder / "run"), run);
  }
}

// A run goes on under another locale than the one it began under.
TEST(Locales, RunsAreLoadedUnderAnother) {
  const TempFolder folder;
  const auto train = [&](const std::string& options) {
    const std::string out = run_here("train --final_eval off --report off --out_dir " +
                                     (folder / "run").string() + " --max_iters " + options);
    EXPECT_NE(out.find("code 0\n"), std::string::npos) << out;
  };
  for (const std::locale& locale : odd_locales(folder)) {
    SCOPED_TRACE(locale.name());
    fs::remove_all(folder / "run");
    {
      const Under odd(locale);
      train(std::string("2") + kSmall);
    }
    train("4 --init_from resume");
    const Under odd(locale);
    train("6 --init_from resume");
    EXPECT_EQ(load_run(folder / "run", kLastCheckpoint).config.learning_rate, 0.00125);
  }
}

}  // namespace
}  // namespace ink
