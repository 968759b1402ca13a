#include "train/cli/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "autograd/io/atomic_file.h"
#include "autograd/io/foreign.h"
#include "data/file.h"
#include "train/checkpoint.h"
#include "train/cli/command_line.h"
#include "train/cli/version.h"
#include "train/report/findings.h"
#include "train/report/numbers.h"
#include "train/saved_run.h"

namespace ink {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int64_t kMostProbes = 40;              // of a run
constexpr double kRenewed = 10;                  // seconds from page to page
constexpr double kShare = 0.01, kPages = 0.005;  // of a run's time

}  // namespace

// The settings of a run that are not the defaults, as words of the command line.
static std::string settings_of(const Json& run) {
  const Json config = run.value("config", Json::object());
  std::string words;
  const auto word = [](const Json& value) {
    return for_shell(value.is_string() ? value.get<std::string>() : value.dump());
  };
  const auto add = [&](const std::string& name) {
    const Json value = config.value(name, Json());
    if (value.is_null()) return;
    words += " --" + name;
    if (!value.is_array()) words += "=" + word(value);
    if (value.is_array())
      for (const Json& one : value)
        words +=
            one.is_string() && is_read_once(one.get<std::string>()) ? " FILE" : " " + word(one);
  };
  if (config.value("model", Json()) != TrainConfig().model) add("model");
  const Json start = config.value("init_from", Json("scratch"));
  if (start != "scratch" && start != "resume") add("init_from");
  const Json others = run.value("defaults", Json::object());
  for (const auto& item : others.items()) add(item.key());
  return words;
}

// Its data alone.
static TrainConfig data_of(const Json& run) {
  const Json config = run.value("config", Json::object());
  TrainConfig read;
  for (const auto& [name, files] : {std::pair{"data", &read.data}, {"val_data", &read.val_data}})
    for (const Json& file : config.value(name, Json::array()))
      if (file.is_string()) files->push_back(file.get<std::string>());
  return read;
}

// The learning rate to go on with, where an error asks for a lower one.
static std::optional<double> lower_rate(const Json& run) {
  const Json rate = run.value("config", Json::object()).value("learning_rate", Json());
  const bool asks = run.value("error", std::string()).find(kLowerRate) != std::string::npos;
  if (!asks || !rate.is_number()) return {};
  const double lower = std::min(rate.get<double>() / 10, TrainConfig().learning_rate);
  return parse_number(fmt::format("{:.1g}", lower));
}

// A loss of this is far above the first one, or above what any vocabulary begins with.
static double too_high(double first) { return std::min(2 * first, 20.0); }

// The first and the last loss of a list up to a step.
static std::optional<std::pair<double, double>> ends_of(const Json& rows, const char* name,
                                                        double last_step) {
  const Json steps = rows.value("step", Json::array()), losses = rows.value(name, Json::array());
  std::optional<std::pair<double, double>> ends;
  for (size_t i = 0; i < losses.size() && steps.at(i).get<double>() <= last_step; ++i)
    if (losses.at(i).is_number())
      ends = {ends ? ends->first : losses.at(i).get<double>(), losses.at(i).get<double>()};
  return ends;
}

// Had a run diverged before its checkpoint was saved? best_is_good: had the best one not?
static bool is_lost(const Json& run, const std::string& out_dir, bool& best_is_good) {
  const auto saved = [&](const std::string& name, const char* field) {
    const nlohmann::json value = checkpoint_state(out_dir, name).value(field, nlohmann::json());
    return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
  };
  const double saved_step = saved(checkpoint_to_resume(out_dir), "step").value_or(-1);
  for (const auto& [part, name] :
       {std::pair{"metrics", "train_loss"}, {"validation", "val_loss"}}) {
    const auto ends = ends_of(run.value(part, Json::object()), name, saved_step);
    if (!ends || ends->second <= too_high(ends->first)) continue;
    const std::optional<double> best = saved(kBestCheckpoint, "best_val_loss");
    best_is_good = best && *best <= too_high(ends->first);
    return true;
  }
  return false;
}

void add_command(Json& run, const std::string& out_dir) {
  const std::string folder = " " + option_typed("--out_dir", out_dir);
  const auto add = [&](const std::string& command, const std::string& note,
                       const std::string& more = "") {
    run["command"] = typed(command) + folder + more;
    run["command_note"] = note;
  };
  if (run.at("state") == "finished") return add("sample", "to let it write");
  const std::optional<double> rate = lower_rate(run);
  bool best_is_good = false;
  const bool is_saved = checkpoint_exists(out_dir, checkpoint_to_resume(out_dir)),
             lost = is_saved && rate && is_lost(run, out_dir, best_is_good);
  if (is_saved && !lost) {
    const Json at = checkpoint_state(out_dir, checkpoint_to_resume(out_dir)).value("step", Json());
    const std::string from =
        run.at("state") == "failed" ? " from the last checkpoint"
        : at.is_number() && at < run.at("step")
            ? fmt::format(" after step {}, the last that was saved", at.get<int64_t>())
            : "";
    return add("train --init_from resume",
               (run.at("state") == "running" ? "if it stops, to go on" : "to go on") + from,
               data_typed(data_of(run)) + (rate ? fmt::format(" --learning_rate {}", *rate) : ""));
  }
  if (run.at("state") == "running") return;
  Json anew = run;
  if (rate) anew["config"]["learning_rate"] = anew["defaults"]["learning_rate"] = *rate;
  if (best_is_good) {
    anew["config"]["init_from"] = out_dir;
    run["command"] = typed("train" + settings_of(anew)) + " --out_dir NEW";
    run["command_note"] = "the loss was too high there; to begin a new run with the best weights";
    return;
  }
  add("train --overwrite" + settings_of(anew),
      lost ? "the loss was too high there; to start anew"
           : "it ended before its first checkpoint; to start anew");
}

RunReport::RunReport(Trainer& trainer, const MetricsTable& lines, Console& console)
    : trainer_(trainer),
      lines_(lines),
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
  const Json run = describe_run(trainer_, program_text());
  if (run != noted_run(folder_)) write_file(folder_ / kRunFile, run.dump(1) + "\n");
  probe_.emplace(trainer_);
}

template <class F>
double RunReport::working(F&& f) {
  if (!on_) return 0;
  const Clock::time_point begin = Clock::now();
  try {
    f();
  } catch (const std::exception& error) {
    on_ = false;
    console_.paragraph(console_.yellow(std::string("No report from here on: ") + error.what()));
  }
  const double seconds = seconds_since(begin);
  seconds_ += seconds;
  return seconds;
}

bool RunReport::has_time() const { return seconds_ + last_probe_ < kShare * seconds_since(start_); }

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
  last_probe_ = working([&] { probe_->before_step(); });
  return on_;
}

bool RunReport::after_step() {
  last_probe_ += working([&] {
    measured_ = trainer_.steps_done();
    probes_->write(probe_->after_step());
  });
  return on_;
}

Json RunReport::run(RunState state) {
  if (on_ && probes_read_at_ != measured_) {
    probes_read_ = read_probes(folder_);
    probes_read_at_ = measured_;
  }
  Json run = run_of(folder_, lines_, on_ ? probes_read_ : Json(), state);
  run["step"] = trainer_.steps_done();
  return run;
}

void RunReport::tell_findings(RunState state, bool told_overfitting) {
  const Json run = this->run(state);
  const std::string by_heart = told_overfitting ? overfitting(run) : "";
  int64_t faults = 0, hints = 0;
  for (const Json& finding : findings_of(run)) {
    const auto level = finding.at("level").get<std::string>(),
               text = finding.at("text").get<std::string>();
    if (level == "good") continue;
    ++(level == "fault" ? faults : hints);
    if (text != by_heart) console_.paragraph(console_.yellow(level + ": " + text));
  }
  const auto count = [](int64_t n, const char* what) { return n == 0 ? "" : counted(n, what); };
  if (faults + hints > 0 && on_)
    console_.paragraph(fmt::format("{}{}{} in all: {}", count(faults, "fault"),
                                   faults > 0 && hints > 0 ? " and " : "", count(hints, "hint"),
                                   page().string()));
}

void RunReport::write(RunState state) {
  last_page_ = working([&] {
    if (lines_.empty()) return;  // it ended before its first line
    Json run = this->run(state);
    add_command(run, trainer_.config().out_dir);
    write_file(folder_ / kReportFile, report_page({run}));
  });
  written_ = Clock::now();
}

void RunReport::keep_fresh() {
  if (!on_ || lines_.empty()) return;
  if (!written_ || seconds_since(*written_) >= std::max(kRenewed, last_page_ / kPages))
    write(RunState::running);
}

}  // namespace ink
