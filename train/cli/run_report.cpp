#include "train/cli/run_report.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "autograd/io/atomic_file.h"
#include "train/cli/command_line.h"
#include "train/cli/version.h"

namespace ink {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int64_t kMostProbes = 40;  // of a run

}  // namespace

void add_command(Json& run, const std::string& out_dir) {
  const bool finished = run.at("state") == "finished";
  const std::string command = finished ? "sample --out_dir" : "train --init_from resume --out_dir";
  run["command"] = typed(command) + " " + for_shell(out_dir);
  run["command_note"] = finished ? "to let it write" : "to go on";
}

RunReport::RunReport(Trainer& trainer, Console& console)
    : trainer_(trainer),
      console_(console),
      folder_(trainer.config().out_dir),
      on_(trainer.config().report == "on") {
  working([&] { begin(); });
}

void RunReport::begin() {
  const auto keep = [&](const std::string& line) {
    const auto step = probe_step(line);
    return step && *step <= trainer_.steps_done();
  };
  probes_.emplace(folder_ / kProbesFile, keep);
  write_file(folder_ / kRunFile, describe_run(trainer_, program_text()).dump(1) + "\n");
  probe_.emplace(trainer_);
}

template <class F>
void RunReport::working(F&& f) {
  if (!on_) return;
  const Clock::time_point begin = Clock::now();
  try {
    f();
  } catch (const std::exception& error) {
    on_ = false;
    console_.line(console_.yellow(std::string("No report from here on: ") + error.what()));
  }
  last_seconds_ = std::chrono::duration<double>(Clock::now() - begin).count();
  seconds_ += last_seconds_;
}

bool RunReport::has_time() const {
  const double passed = std::chrono::duration<double>(Clock::now() - start_).count();
  return seconds_ + last_seconds_ < 0.01 * passed;
}

bool RunReport::is_due() const {
  const TrainConfig& config = trainer_.config();
  const int64_t step = trainer_.steps_done() + 1;
  if (!on_) return false;
  // Always: the first step, one at about the highest learning rate, and the last one.
  const int64_t early = std::clamp(config.warmup_iters, config.max_iters / 8, config.max_iters / 2);
  if (step == 1 || step == early + 1 || step == config.max_iters) return true;
  const int64_t apart = std::max(config.eval_interval, config.max_iters / kMostProbes);
  return step % config.eval_interval == 0 && step - std::max<int64_t>(measured_, 0) >= apart &&
         has_time();
}

bool RunReport::before_step() {
  working([&] { probe_->before_step(); });
  return on_;
}

bool RunReport::after_step() {
  working([&] {
    measured_ = trainer_.steps_done();
    probes_->write(probe_->after_step());
  });
  return on_;
}

void RunReport::write(RunState state) {
  if (state == RunState::running && written_ && !has_time()) return;
  working([&] {
    if (fs::file_size(folder_ / kMetricsFile) == 0) return;  // it ended before its first line
    Json run = read_run(folder_, state);
    add_command(run, trainer_.config().out_dir);
    write_file(folder_ / kReportFile, report_page({run}));
    written_ = true;
  });
}

void RunReport::write_first() {
  if (!written_) write(RunState::running);
}

}  // namespace ink
