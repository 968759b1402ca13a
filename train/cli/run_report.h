// What a run writes for its report: run.json, probes.jsonl and report.html in out_dir.
#pragma once

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "train/cli/console.h"
#include "train/cli/json_lines.h"
#include "train/report/probe.h"
#include "train/report/report.h"
#include "train/report/run_data.h"

namespace ink {

/// Measures some steps, and writes the page anew every ten seconds. It takes at most about 1 % of
/// the run's time, half of that for pages, because it leaves out what would take more; but three
/// steps are always measured. If a file cannot be written, the run is told so once, and goes on
/// without a report.
class RunReport {
 public:
  /// Writes run.json, and removes what a resumed run measured after the step it goes on from.
  /// Does nothing, now and later, under `report = off`.
  RunReport(Trainer& trainer, const MetricsTable& lines, Console& console);

  /// Where the page is; empty if there is no report.
  std::filesystem::path page() const { return on_ ? folder_ / kReportFile : ""; }
  /// Is the next step to be measured? Then call before_step() and after_step() around it.
  bool is_due() const;
  bool before_step();  // this and the next one: was it done?
  bool after_step();
  /// The run as it is now, as read_run() gives it; also without a report.
  nlohmann::ordered_json run(RunState state);
  /// Shows what stands out in a run that ends, and where the page is.
  void tell_findings(RunState state, bool told_overfitting);
  /// Writes report.html.
  void write(RunState state);
  /// The same while the run goes on, if that was not yet done, or if it is time.
  void keep_fresh();

 private:
  using Clock = std::chrono::steady_clock;
  bool has_time() const;
  /// Calls f(), and returns its seconds. An error ends the report.
  template <class F>
  double working(F&& f);
  void begin();

  Trainer& trainer_;
  const MetricsTable& lines_;
  Console& console_;
  std::filesystem::path folder_;
  bool on_;
  std::optional<Probe> probe_;
  std::optional<JsonLines> probes_;
  nlohmann::ordered_json probes_read_;           // for the page; up to probes_read_at_
  int64_t measured_ = -1, probes_read_at_ = -2;  // steps
  const Clock::time_point start_ = Clock::now();
  std::optional<Clock::time_point> written_;
  double seconds_ = 0, last_probe_ = 0, last_page_ = 0;  // spent in all, and by the last ones
};

/// What an error says where a loss was not finite.
inline constexpr const char* kLowerRate = "a lower --learning_rate";

/// Adds the command that goes on with a run, or samples from it, to what read_run() gave. Where its
/// error asks for a lower learning rate, the command has one.
void add_command(nlohmann::ordered_json& run, const std::string& out_dir);

}  // namespace ink
