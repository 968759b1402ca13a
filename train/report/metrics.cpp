#include "train/report/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/io/foreign.h"
#include "data/file.h"
#include "train/config.h"

namespace ink {
namespace {

using Json = nlohmann::ordered_json;

// What stands for the lines of a long log that are one row of a table.
enum class Joined { last, mean, largest };

struct Column {
  const char* name;
  std::optional<double> MetricsStep::*value;
  Joined joined = Joined::last;
};
constexpr std::array<Column, kMetricsColumns> kColumns = {
    {{"train_loss", &MetricsStep::train_loss, Joined::mean},
     {"val_loss", &MetricsStep::val_loss},
     {"val_bpb", &MetricsStep::val_bpb},
     {"val_answers", &MetricsStep::val_answers},
     {"val_set", &MetricsStep::val_set},
     {"sampled_loss", &MetricsStep::sampled_loss},
     {"best_possible", &MetricsStep::best_possible, Joined::mean},
     {"lr", &MetricsStep::lr},
     {"grad_norm", &MetricsStep::grad_norm, Joined::largest},
     {"tokens_per_s", &MetricsStep::tokens_per_s, Joined::mean},
     {"ms", &MetricsStep::ms, Joined::mean},
     {"elapsed_s", &MetricsStep::elapsed_s},
     {"skipped", &MetricsStep::skipped},
     {"memory_mb", &MetricsStep::memory_mb},
     {"train_set", &MetricsStep::train_set},
     {"speed_set", &MetricsStep::speed_set},
     {"steps", &MetricsStep::steps},
     {"travel_ms", &MetricsStep::travel_ms, Joined::mean},
     {"wait_ms", &MetricsStep::wait_ms, Joined::mean}}};
constexpr size_t kMostRows = 3000;  // of a table

// What the fields of a line say. False: it is no line of metrics.
struct LineFields {
  MetricsStep step;
  bool has_step = false;

  static const Column* column(std::string_view name) {
    return std::find_if(kColumns.begin(), kColumns.end(),
                        [&](const Column& c) { return name == c.name; });
  }
  bool number(std::string_view name, std::optional<double> value) {
    if (name == "step") {  // a whole number, once
      const bool good =
          !has_step && value && *value >= 0 && *value <= kMostSteps && *value == std::floor(*value);
      has_step = good;
      if (good) step.step = static_cast<int64_t>(*value);
      return good;
    }
    const Column* const found = column(name);
    if (found == kColumns.end()) return true;
    if (step.*(found->value)) return false;
    step.*(found->value) = value;
    step.is_training = step.is_training || name == "train_loss";
    step.is_validation = step.is_validation || name == "val_loss";
    return true;
  }
  bool text(std::string_view name, std::string_view value) {
    if (name == "sample") step.sample = value;
    if (name == "error") step.error = value;
    return name != "step" && column(name) == kColumns.end();
  }
};

// Takes the fields of an object that holds numbers, nulls and plain texts, and no space, ten times
// as fast as JSON is parsed. False: it is something else.
bool quick_fields(std::string_view line, LineFields& fields) {
  size_t at = 0;
  const auto takes = [&](std::string_view what) {
    const bool is = line.substr(at, what.size()) == what;
    if (is) at += what.size();
    return is;
  };
  const auto quoted_text = [&](std::string_view& out) {
    if (!takes("\"")) return false;
    const auto is_plain = [](char c) { return c >= ' ' && c < 0x7f && c != '"' && c != '\\'; };
    size_t end = at;
    while (end < line.size() && is_plain(line[end])) ++end;
    if (end == line.size() || line[end] != '"') return false;
    out = line.substr(at, end - at);
    at = end + 1;
    return true;
  };
  if (!takes("{")) return false;
  do {
    std::string_view name, value;
    if (!quoted_text(name) || !takes(":")) return false;
    if (takes("null")) {
      if (!fields.number(name, {})) return false;
    } else if (at < line.size() && line[at] == '"') {
      if (!quoted_text(value) || !fields.text(name, value)) return false;
    } else {
      const size_t end = std::min(line.find_first_not_of("+-.0123456789Ee", at), line.size());
      const auto x = parse_number(std::string(line.substr(at, end - at)));
      if (!x || !fields.number(name, x)) return false;
      at = end;
    }
  } while (takes(","));
  return takes("}") && at == line.size();
}

}  // namespace

nlohmann::ordered_json shortened(double x) {
  if (!std::isfinite(x)) return nullptr;
  return parse_number(fmt::format("{:.5g}", x)).value_or(x);
}

std::string sample_file(int64_t step) { return fmt::format("{}/step_{:06}.txt", kSamples, step); }

std::optional<MetricsStep> parse_metrics(const std::string& line) try {
  LineFields fields;
  if (!quick_fields(line, fields)) {
    fields = {};
    const nlohmann::json object = parse_json(line);
    for (const auto& [name, value] : object.items()) {
      const bool good = value.is_null() ? fields.number(name, {})
                        : value.is_number()
                            ? fields.number(name, value.get<double>())
                            : fields.text(name, value.is_string() ? value.get<std::string>() : "");
      if (!good) return {};
    }
  }
  const std::string& sample = fields.step.sample;
  const bool good = fields.has_step && (sample.empty() || sample == sample_file(fields.step.step));
  return good ? std::optional(fields.step) : std::nullopt;
} catch (const Error&) {
  return {};
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
    // One on the whole set may be the last; a curve is of the same batches.
    if (at.val_loss) validation.emplace_back(step, at.sampled_loss.value_or(*at.val_loss));
    if (at.val_loss && at.best_possible && (best.empty() || !at.sampled_loss))
      best.emplace_back(step, *at.best_possible);
  }
  if (!best.empty() && !training.empty()) {  // a level, all along
    best.insert(best.begin(), {training.front().first, best.front().second});
    if (training.back().first > best.back().first)
      best.emplace_back(training.back().first, best.back().second);
  }
  const double span = training.empty() ? 1 : training.back().first / 200;
  Chart chart{title, "step", "loss (nats per token)", {}};
  chart.lines.push_back({"", Style::thin, 0, training});
  chart.lines.push_back({"validation loss", Style::points, 1, validation});
  if (!best.empty()) chart.lines.push_back({"best possible", Style::dashed, 2, best});
  // Points that are far from each other are not changed by it.
  const char* const name = training.size() > 100 ? "training loss, smoothed" : "training loss";
  chart.lines.insert(chart.lines.begin(), {name, Style::line, 0, smoothed(training, span)});
  return chart;
}

void MetricsTable::add(const MetricsStep& line) {
  ++lines_;
  last_step_ = line.step;
  error_ = line.error;
  if (line.elapsed_s) elapsed_s_ = std::max(elapsed_s_.value_or(0), *line.elapsed_s);
  if (line.ms) {
    ms_.push_back(*line.ms);
    trained_s_ +=
        *line.ms / 1000 * static_cast<double>(line.step - std::exchange(at_ms_, line.step));
  }
  if (ms_.size() > 10) ms_.erase(ms_.begin());
  if (line.is_training) add(training_, line);
  // One that was repeated replaces the one before.
  if (line.is_validation && !validation_.rows.empty() && validation_.rows.back().lines == 1 &&
      validation_.rows.back().step == line.step)
    validation_.rows.pop_back();
  if (line.is_validation) add(validation_, line);
  if (line.is_validation) last_validation_ = line;
  if (!line.sample.empty() && (samples_.empty() || samples_.back() != line.step))
    samples_.push_back(line.step);
}

MetricsTable::Row MetricsTable::row_of(const MetricsStep& line) {
  Row row;
  row.step = line.step, row.lines = 1, row.is_validation = line.is_validation;
  for (size_t i = 0; i < kColumns.size(); ++i) {
    const std::optional<double>& value = line.*(kColumns[i].value);
    if (value) row.values[i] = *value, row.counts[i] = 1;
  }
  return row;
}

// Does an evaluation stand for one after it, too? It does if its loss is lower, on the same data.
bool MetricsTable::Row::stands_for(const Row& next) const {
  const auto of = [](const Row& row, auto member) {
    const auto column = std::find_if(kColumns.begin(), kColumns.end(),
                                     [&](const Column& c) { return c.value == member; });
    const auto i = static_cast<size_t>(column - kColumns.begin());
    return row.counts[i] > 0 ? std::optional(row.values[i]) : std::nullopt;
  };
  const auto loss = [&](const Row& row) {
    const std::optional<double> sampled = of(row, &MetricsStep::sampled_loss);
    return sampled ? sampled : of(row, &MetricsStep::val_loss);
  };
  return of(*this, &MetricsStep::val_set) == of(next, &MetricsStep::val_set) && loss(*this) &&
         (!loss(next) || *loss(*this) < *loss(next));
}

void MetricsTable::join(Row& row, const Row& next) {
  const int64_t lines = row.lines + next.lines;
  if (row.is_validation) {
    if (!row.stands_for(next)) row = next;
  } else {
    row.step = next.step;
    for (size_t i = 0; i < kColumns.size(); ++i) {
      if (next.counts[i] == 0) continue;
      double& value = row.values[i];
      value = kColumns[i].joined == Joined::mean ? value + next.values[i]
              : kColumns[i].joined == Joined::largest && row.counts[i] > 0
                  ? std::max(value, next.values[i])
                  : next.values[i];
      row.counts[i] += next.counts[i];
    }
  }
  row.lines = lines;
}

void MetricsTable::add(Rows& rows, const MetricsStep& line) {
  std::vector<Row>& all = rows.rows;
  if (all.size() == 2 * kMostRows && all.back().lines == rows.lines_of_each) {
    for (size_t i = 0; i < kMostRows; ++i) {
      if (i > 0) all[i] = all[2 * i];
      join(all[i], all[2 * i + 1]);
    }
    all.resize(kMostRows);
    rows.lines_of_each *= 2;
  }
  const Row row = row_of(line);
  if (all.empty() || all.back().lines == rows.lines_of_each) {
    all.push_back(row);
  } else {
    join(all.back(), row);
  }
}

int64_t MetricsTable::joined(const Rows& table) {
  return table.lines_of_each * (table.rows.size() > kMostRows ? 2 : 1);
}

std::vector<MetricsTable::Row> MetricsTable::shown(const Rows& table) {
  std::vector<Row> rows = table.rows;
  if (rows.size() <= kMostRows) return rows;
  for (size_t i = 0; i < rows.size(); i += 2) {
    rows[i / 2] = rows[i];
    if (i + 1 < rows.size()) join(rows[i / 2], rows[i + 1]);
  }
  rows.resize((rows.size() + 1) / 2);
  return rows;
}

nlohmann::ordered_json MetricsTable::columns(const std::vector<Row>& rows) {
  Json columns{{"step", Json::array()}};
  for (const Row& row : rows) columns["step"].push_back(row.step);
  for (size_t c = 0; c < kColumns.size(); ++c) {
    Json column = Json::array();
    bool known = false;
    for (const Row& row : rows) {
      const auto count = static_cast<double>(row.counts[c]);
      const bool is_mean = kColumns[c].joined == Joined::mean && !row.is_validation;
      column.push_back(count > 0 ? shortened(is_mean ? row.values[c] / count : row.values[c])
                                 : Json());
      known = known || count > 0;
    }
    if (known) columns[kColumns[c].name] = std::move(column);
  }
  return columns;
}

nlohmann::ordered_json MetricsTable::training() const { return columns(shown(training_)); }

nlohmann::ordered_json MetricsTable::validation() const {
  std::vector<Row> rows = shown(validation_);
  if (!rows.empty() && rows.back().step != last_validation_->step)
    rows.push_back(row_of(*last_validation_));
  return columns(rows);
}

std::optional<MetricsStep> MetricsTable::last_validation() const {
  return last_validation_ && last_validation_->val_loss ? last_validation_ : std::nullopt;
}

bool MetricsTable::has(const MetricsStep& line) const {
  if (!line.is_training) return last_validation_ && last_validation_->step >= line.step;
  return !training_.rows.empty() && training_.rows.back().step >= line.step;
}

void MetricsTable::begin_process(int64_t step) {
  ms_.clear();
  began_ = at_ms_ = step;
  began_s_ = elapsed_s_.value_or(0);
  trained_s_ = 0;
}

std::optional<double> MetricsTable::seconds_left(int64_t max_iters) const {
  if (ms_.empty() || last_step_ <= began_) return {};
  const double ms = std::accumulate(ms_.begin(), ms_.end(), 0.0) / static_cast<double>(ms_.size()),
               beside = std::max(0.0, elapsed_s_.value_or(0) - began_s_ - trained_s_) /
                        static_cast<double>(last_step_ - began_);
  return (ms / 1000 + beside) * static_cast<double>(std::max<int64_t>(0, max_iters - last_step_));
}

MetricsTable read_table(const std::filesystem::path& file) {
  MetricsTable table;
  for_each_line_of(TextFile(file), [&](std::string_view, const std::string& line) {
    if (const auto step = parse_metrics(line)) table.add(*step);
  });
  INK_CHECK(!table.empty(), file.string(), ": expected lines of metrics, found none");
  return table;
}

std::string metrics_csv(const std::vector<MetricsStep>& steps) {
  std::string csv = "step";
  for (const Column& column : kColumns) csv += fmt::format(",{}", column.name);
  csv += "\n";
  for (const MetricsStep& step : steps) {
    if (!step.sample.empty() || !step.error.empty()) continue;
    csv += fmt::format("{}", step.step);
    for (const Column& column : kColumns)
      csv += (step.*column.value) ? fmt::format(",{}", *(step.*column.value)) : ",";
    csv += "\n";
  }
  return csv;
}

}  // namespace ink
