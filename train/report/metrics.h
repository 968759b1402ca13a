// The metrics.jsonl of a run, read back.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "train/report/chart.h"

namespace ink {

constexpr const char* kMetricsFile = "metrics.jsonl";  // in out_dir, like all of these

/// A line of metrics.jsonl. Training steps have a training loss, evaluations a validation loss, and
/// a sample has a file. Lines of older runs lack some fields.
struct MetricsStep {
  int64_t step = 0;
  bool is_validation = false;
  std::optional<double> train_loss, val_loss, best_possible, lr, grad_norm, tokens_per_s, ms;
  std::optional<double> elapsed_s;  // seconds of the run so far
  std::optional<double> skipped;    // steps skipped so far
  std::optional<double> memory_mb;  // of the process; of the device's tensors on a GPU
  std::string sample;               // sample_file(step), or empty
};

/// Five digits of x, or null if it is not finite: a number for people.
nlohmann::ordered_json shortened(double x);

inline constexpr const char* kSamples = "samples";  // a folder in out_dir
/// The file of the sample after a step, in out_dir: "samples/step_000500.txt".
std::string sample_file(int64_t step);

/// Nothing where it is not a line of metrics.
std::optional<MetricsStep> parse_metrics(const std::string& line);

/// In the order of the file. Lines that are not metrics are left out. Throws where the file cannot
/// be read or holds no line of metrics.
std::vector<MetricsStep> read_metrics(const std::filesystem::path& file);

/// Training and validation loss by step, against the best possible one where it is known.
Chart loss_chart(const std::vector<MetricsStep>& steps, const std::string& title);

/// The training steps, or the evaluations, as lists by name: {"step": [...], "train_loss": [...]}.
/// A number that no step has is left out. Of more than `most` steps, neighbours are joined: their
/// losses are averaged, and of all else the last is taken.
nlohmann::ordered_json metrics_columns(const std::vector<MetricsStep>& steps, bool validation,
                                       size_t most);

/// One row a step and one column a number, with a header; what is not known is empty. Samples have
/// no row.
std::string metrics_csv(const std::vector<MetricsStep>& steps);

}  // namespace ink
