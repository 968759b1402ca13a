// What a run writes for its report: run.json, probes.jsonl and report.html in out_dir.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "train/cli/console.h"
#include "train/cli/json_lines.h"
#include "train/report/probe.h"
#include "train/report/report.h"
#include "train/report/run_data.h"

namespace ink {

/// Measures some steps, and writes the page anew. It takes at most about 1 % of the run's time,
/// because it leaves out what would take more; but three steps are always measured. If a file
/// cannot be written, the run is told so once, and goes on without a report.
class RunReport {
 public:
  /// Writes run.json, and removes what a resumed run measured after the step it goes on from.
  /// Does nothing, now and later, under `report = off`.
  RunReport(Trainer& trainer, Console& console);

  /// Where the page is; empty if there is no report.
  std::filesystem::path page() const { return on_ ? folder_ / kReportFile : ""; }
  /// Is the next step to be measured? Then call before_step() and after_step() around it.
  bool is_due() const;
  bool before_step();  // this and the next one: was it done?
  bool after_step();
  /// Writes report.html. Unless the run has ended, only if there is time.
  void write(RunState state);
  /// Writes it if that was not yet done, so that one can watch a run from its first line on.
  void write_first();

 private:
  using Clock = std::chrono::steady_clock;
  bool has_time() const;
  /// Calls f(), and counts its time. An error ends the report.
  template <class F>
  void working(F&& f);
  void begin();

  Trainer& trainer_;
  Console& console_;
  std::filesystem::path folder_;
  bool on_, written_ = false;
  std::optional<Probe> probe_;
  std::optional<JsonLines> probes_;
  int64_t measured_ = -1;  // step
  const Clock::time_point start_ = Clock::now();
  double seconds_ = 0, last_seconds_ = 0;  // spent, and by the last piece of work
};

/// Adds the command that goes on with a run, or samples from it, to what read_run() gave.
void add_command(nlohmann::ordered_json& run, const std::string& out_dir);

}  // namespace ink
