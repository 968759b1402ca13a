#include "train/report/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "autograd/io/foreign.h"
#include "data/file.h"
#include "train/config.h"

namespace ink {
namespace {

struct Column {
  const char* name;
  std::optional<double> MetricsStep::*value;
};
constexpr std::array<Column, 10> kColumns = {{{"train_loss", &MetricsStep::train_loss},
                                              {"val_loss", &MetricsStep::val_loss},
                                              {"best_possible", &MetricsStep::best_possible},
                                              {"lr", &MetricsStep::lr},
                                              {"grad_norm", &MetricsStep::grad_norm},
                                              {"tokens_per_s", &MetricsStep::tokens_per_s},
                                              {"ms", &MetricsStep::ms},
                                              {"elapsed_s", &MetricsStep::elapsed_s},
                                              {"skipped", &MetricsStep::skipped},
                                              {"memory_mb", &MetricsStep::memory_mb}}};

}  // namespace

nlohmann::ordered_json shortened(double x) {
  if (!std::isfinite(x)) return nullptr;
  return parse_number(fmt::format("{:.5g}", x)).value_or(x);
}

std::string sample_file(int64_t step) { return fmt::format("{}/step_{:06}.txt", kSamples, step); }

std::optional<MetricsStep> parse_metrics(const std::string& line) {
  try {
    const nlohmann::json object = parse_json(line);
    const Fields fields("metrics", object);
    MetricsStep step;
    step.step = fields.count("step", kMostSteps);
    step.is_validation = fields.has("val_loss");
    for (const auto& [name, value] : kColumns)
      if (fields.has(name)) step.*value = fields.number(name);
    if (fields.has("sample")) step.sample = fields.text("sample");
    if (!step.sample.empty() && step.sample != sample_file(step.step)) return {};
    return step;
  } catch (const Error&) {
    return {};
  }
}

std::vector<MetricsStep> read_metrics(const std::filesystem::path& file) {
  std::vector<MetricsStep> steps;
  for_each_line(read_file(file), [&](const std::string& line) {
    if (const auto step = parse_metrics(line)) steps.push_back(*step);
  });
  INK_CHECK(!steps.empty(), file.string(), ": expected lines of metrics, found none");
  return steps;
}

Chart loss_chart(const std::vector<MetricsStep>& steps, const std::string& title) {
  using Style = ChartLine::Style;
  std::vector<std::pair<double, double>> training, validation, best;
  for (const MetricsStep& at : steps) {
    const auto step = static_cast<double>(at.step);
    if (at.train_loss) training.emplace_back(step, *at.train_loss);
    if (at.val_loss) validation.emplace_back(step, *at.val_loss);
    if (at.val_loss && at.best_possible) best.emplace_back(step, *at.best_possible);
  }
  if (!best.empty() && !training.empty())  // a level, all along
    best.insert(best.begin(), {training.front().first, best.front().second});
  const double span = training.empty() ? 1 : training.back().first / 200;
  Chart chart{title, "step", "loss (nats per token)", {}};
  chart.lines.push_back({"", Style::thin, 0, training});
  chart.lines.push_back({"validation loss", Style::points, 1, validation});
  if (!best.empty()) chart.lines.push_back({"best possible", Style::dashed, 2, best});
  chart.lines.insert(chart.lines.begin(),
                     {"training loss", Style::line, 0, smoothed(training, span)});
  return chart;
}

nlohmann::ordered_json metrics_columns(const std::vector<MetricsStep>& steps, bool validation,
                                       size_t most) {
  std::vector<const MetricsStep*> rows;
  for (const MetricsStep& at : steps)
    if (validation ? at.val_loss.has_value() : at.train_loss.has_value()) rows.push_back(&at);
  const size_t joined = (rows.size() + most - 1) / most;
  nlohmann::ordered_json columns{{"step", nlohmann::ordered_json::array()}};
  for (size_t i = 0; i < rows.size(); i += joined)
    columns["step"].push_back(rows[std::min(i + joined, rows.size()) - 1]->step);
  for (const auto& [name, value] : kColumns) {
    const bool is_mean = value == &MetricsStep::train_loss || value == &MetricsStep::best_possible;
    nlohmann::ordered_json column = nlohmann::ordered_json::array();
    bool known = false;
    for (size_t i = 0; i < rows.size(); i += joined) {
      double sum = 0, count = 0, last = 0;
      for (size_t j = i; j < std::min(i + joined, rows.size()); ++j)
        if (rows[j]->*value) last = *(rows[j]->*value), sum += last, ++count;
      column.push_back(count > 0 ? shortened(is_mean ? sum / count : last) : nullptr);
      known = known || count > 0;
    }
    if (known) columns[name] = std::move(column);
  }
  return columns;
}

std::string metrics_csv(const std::vector<MetricsStep>& steps) {
  std::string csv = "step";
  for (const Column& column : kColumns) csv += fmt::format(",{}", column.name);
  csv += "\n";
  for (const MetricsStep& step : steps) {
    if (!step.sample.empty()) continue;
    csv += fmt::format("{}", step.step);
    for (const Column& column : kColumns)
      csv += (step.*column.value) ? fmt::format(",{}", *(step.*column.value)) : ",";
    csv += "\n";
  }
  return csv;
}

}  // namespace ink
