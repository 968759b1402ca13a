// The metrics.jsonl of a run, read back.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/report/chart.h"

namespace ink {

/// A line of metrics.jsonl. Training steps have a training loss, evaluations a validation loss.
struct MetricsStep {
  int64_t step = 0;
  bool is_validation = false;
  std::optional<double> train_loss, val_loss, best_possible, lr, grad_norm, tokens_per_s, ms;
};

/// Nothing where it is not a line of metrics.
std::optional<MetricsStep> parse_metrics(const std::string& line);

/// In the order of the file. Lines that are not metrics are left out. Throws where the file cannot
/// be read or holds no line of metrics.
std::vector<MetricsStep> read_metrics(const std::filesystem::path& file);

/// Training and validation loss by step, against the best possible one where it is known.
Chart loss_chart(const std::vector<MetricsStep>& steps, const std::string& title);

/// One row a step and one column a number, with a header; what is not known is empty.
std::string metrics_csv(const std::vector<MetricsStep>& steps);

}  // namespace ink
