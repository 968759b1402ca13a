// What `inkling report` writes: curves that lie where the numbers say, and the numbers themselves.
// And that all that is written is the same whatever locale a program sets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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
#include <sstream>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "autograd/base/log.h"
#include "data/file.h"
#include "error_of.h"
#include "nn/batch_norm.h"
#include "nn/linear.h"
#include "run_program.h"
#include "temp_files.h"
#include "train/cli/command_line.h"
#include "train/flow/draw_flow.h"
#include "train/flow/watch.h"
#include "train/report/look.h"
#include "train/report/metrics.h"
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
            "step,train_loss,val_loss,val_bpb,val_set,sampled_loss,best_possible,lr,grad_norm,"
            "tokens_per_s,ms,elapsed_s,skipped,memory_mb\n"
            "10,2.5,,,,,,0.01,,,3,,,\n20,,,,,,,0.02,,,3.5,,,\n20,,1.5,,,,0.5,,,,,7.5,,\n"
            "30,2,,,,,,,,,,8,3,60.5\n");
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

// A line that a run wrote is read fast, and any other as JSON is: with the same result.
TEST(Report, SkimsLines) {
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
        "no metrics"}) {
    const auto exact = parse_metrics(line), quick = skim_metrics(line);
    ASSERT_EQ(exact.has_value(), quick.has_value()) << line;
    if (!exact) continue;
    EXPECT_EQ(exact->step, quick->step) << line;
    EXPECT_EQ(exact->sample + exact->error, quick->sample + quick->error) << line;
    EXPECT_EQ(exact->is_training, quick->is_training) << line;
    EXPECT_EQ(exact->is_validation, quick->is_validation) << line;
    for (const auto column : {&MetricsStep::train_loss, &MetricsStep::val_loss, &MetricsStep::lr,
                              &MetricsStep::ms, &MetricsStep::elapsed_s}) {
      ASSERT_EQ((*exact.*column).has_value(), (*quick.*column).has_value()) << line;
      if (*exact.*column) {
        EXPECT_NEAR(*(*quick.*column) / *(*exact.*column), 1, 1e-14) << line;
      }
    }
  }
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
std::vector<std::locale> odd_locales(const TempFolder& folder) {
  std::vector<std::locale> locales{std::locale(std::locale::classic(), new Punctuation)};
  const std::string made = (folder / "de_DE.UTF-8").string();
  if (std::system(("localedef -i de_DE -f UTF-8 '" + made + "' >/dev/null 2>&1").c_str()) <= 256) {
    setenv("LOCPATH", folder.path().c_str(), 1);
    try {
      locales.emplace_back("de_DE.UTF-8");
    } catch (const std::runtime_error&) {  // not made
    }
    unsetenv("LOCPATH");
  }
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
