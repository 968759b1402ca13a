// The metrics.jsonl of a run, read back.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "train/report/chart.h"

namespace ink {

constexpr const char* kMetricsFile = "metrics.jsonl";  // in out_dir, like all of these

inline constexpr size_t kMetricsColumns = 19;  // the numbers of:

/// A line of metrics.jsonl. Training steps have a training loss, evaluations a validation loss, and
/// a sample has a file. Lines of older runs lack some fields.
struct MetricsStep {
  int64_t step = 0;
  bool is_training = false, is_validation = false;  // also where the loss is null: not finite
  std::optional<double> train_loss, val_loss, best_possible, lr, grad_norm, tokens_per_s, ms;
  std::optional<double> elapsed_s;    // seconds of the run so far
  std::optional<double> skipped;      // steps skipped so far
  std::optional<double> memory_mb;    // of the process; of the device's tensors on a GPU
  std::optional<double> val_bpb;      // the validation loss as bits per byte
  std::optional<double> val_answers;  // of a task: the share of whole answers that are right
  // A number for what val_loss was measured on, and the loss on the batches of other evaluations
  // where val_loss is that of the whole set.
  std::optional<double> val_set, sampled_loss;
  std::optional<double> train_set;  // a number for the data and batch of a training step
  std::optional<double> speed_set;  // the same with all else that its speed depends on: the machine
  std::optional<double> steps;      // over which means are; log_interval where it is not there
  std::optional<double> travel_ms, wait_ms;  // of a step of several processes
  std::string sample;                        // sample_file(step), or empty
  std::string error;                         // of a run that failed
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

/// What a page shows of the lines of a run, given in their order, in little memory.
class MetricsTable {
 public:
  void add(const MetricsStep& line);

  /// The training steps, or the evaluations, as lists by name: {"step": [...], "train_loss":
  /// [...]}. A number that no step has is left out. Of more than 3,000 training steps, neighbours
  /// are joined: losses and speeds are averaged, of gradient norms the largest is taken, and of all
  /// else the last. Of neighbouring evaluations the one with the lowest loss stays, and the last
  /// of all does.
  nlohmann::ordered_json training() const;
  nlohmann::ordered_json validation() const;
  /// Of how many lines a training step, or an evaluation, of these lists is.
  int64_t joined_training() const { return joined(training_); }
  int64_t joined_validation() const { return joined(validation_); }
  /// The steps after which there is a sample.
  const std::vector<int64_t>& samples() const { return samples_; }
  /// The numbers of the last evaluation, if its loss is finite.
  std::optional<MetricsStep> last_validation() const;
  /// Is there a line of this kind, of this step or a later one?
  bool has(const MetricsStep& line) const;
  bool empty() const { return lines_ == 0; }
  int64_t last_step() const { return last_step_; }
  const std::string& error() const { return error_; }  // of the last line
  std::optional<double> elapsed_s() const { return elapsed_s_; }
  /// The next lines are those of another process, which goes on after this step.
  void begin_process(int64_t step);
  /// Until max_iters steps are done, at the speed of the last ten lines that tell it, and with as
  /// much beside the steps (evaluations, samples) as before. Only lines of this process count: the
  /// one before had another machine or batch, perhaps. Empty until there is one.
  std::optional<double> seconds_left(int64_t max_iters) const;

 private:
  struct Row {
    int64_t step = 0, lines = 0;
    bool is_validation = false;
    std::array<double, kMetricsColumns> values{};  // by column: a sum, the largest, or the last
    std::array<int64_t, kMetricsColumns> counts{};
    bool stands_for(const Row& next) const;
  };
  struct Rows {
    std::vector<Row> rows;
    int64_t lines_of_each = 1;
  };
  static Row row_of(const MetricsStep& line);
  static void join(Row& row, const Row& next);
  static void add(Rows& rows, const MetricsStep& line);
  static int64_t joined(const Rows& table);
  static std::vector<Row> shown(const Rows& table);
  static nlohmann::ordered_json columns(const std::vector<Row>& rows);

  Rows training_, validation_;
  std::optional<MetricsStep> last_validation_;
  std::vector<int64_t> samples_;
  int64_t lines_ = 0, last_step_ = 0;
  // Of this process: its last steps, the step of the last of them, where and when it began, and the
  // time of its steps alone.
  std::vector<double> ms_;
  int64_t at_ms_ = 0, began_ = 0;
  double began_s_ = 0, trained_s_ = 0;
  std::optional<double> elapsed_s_;
  std::string error_;
};

/// The lines of a file, without keeping them. Throws as read_metrics does.
MetricsTable read_table(const std::filesystem::path& file);

/// One row a step and one column a number, with a header; what is not known is empty. Samples have
/// no row.
std::string metrics_csv(const std::vector<MetricsStep>& steps);

}  // namespace ink
