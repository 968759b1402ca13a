// inkling train
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/base/parallel.h"
#include "autograd/base/text.h"
#include "autograd/inspect/machine.h"
#include "autograd/io/foreign.h"
#include "autograd/io/log.h"
#include "autograd/memory/device_backend.h"
#include "data/data_files.h"
#include "data/file.h"
#include "data/tasks.h"
#include "train/checkpoint.h"
#include "train/cli/check_steps.h"
#include "train/cli/command_line.h"
#include "train/cli/console.h"
#include "train/cli/introduction.h"
#include "train/cli/out_folder.h"
#include "train/cli/progress_line.h"
#include "train/cli/run_report.h"
#include "train/cli/signals.h"
#include "train/cli/step_profile.h"
#include "train/cli/waiting.h"
#include "train/parallel/together.h"
#include "train/report/findings.h"
#include "train/report/numbers.h"
#include "train/report/run_data.h"
#include "train/trainer.h"

namespace ink {
namespace {

using Clock = std::chrono::steady_clock;

// Thrown out of a sample that an interrupt cuts short.
struct Interrupted {};

std::string percent_above(double loss, double best) {
  return (loss >= best ? "+" : "") + above_best(loss, best, 1);
}

// A run with its output: the trainer, the clock, the console and metrics.jsonl.
class TrainRun {
 public:
  TrainRun(const TrainConfig& config, const std::optional<SavedRun>& saved,
           const std::string& profile, OutFolder& folder, Console& console)
      : config_(config),
        folder_(folder),
        console_(console),
        profile_(profile),
        trainer_(make_trainer(config, saved, console)),
        metrics_((folder.make_room(console), std::filesystem::path(config.out_dir)) / kMetricsFile,
                 trainer_.steps_done()),
        page_(trainer_, metrics_.table(), console_),
        start_(Clock::now()),
        kept_lines_(trainer_.steps_done(), config.max_iters),
        saves_(checkpoint_exists(config.out_dir, kLastCheckpoint)),
        first_step_(trainer_.steps_done()),
        lacks_save_(saved && saved->folder.filename() != kLastCheckpoint),
        skipped_(trainer_.skipped().total) {
    const std::string set = training_set();
    training_set_ = five_digits(set);
    speed_set_ = five_digits(set + speed_set());
    elapsed_before_ = metrics_.table().elapsed_s().value_or(0);
    if (config.init_from != "resume") return;
    if (first_step_ < config.max_iters)
      if (const std::string text = changed_rate(config, *saved); !text.empty()) rate_text_ = text;
    for (const std::string& text : saved->unwritten) {
      const auto line = parse_metrics(text);
      if (line && !metrics_.table().has(*line)) metrics_.write(nlohmann::ordered_json::parse(text));
    }
  }

  int run() {
    watch_signals(  // before anything says that they save
        filled("\ninkling train: stopping; the run is saved first. Ctrl-C again stops at once, "
               "unsaved\n",
               help_columns(), 2));
    introduce(console_, trainer_, page_.page(), rate_text_);
    last_report_ = Clock::now();
    try {
      return train();
    } catch (const std::exception& error) {
      const std::string text = explained(error);
      note_failure(text);
      const std::string advice = advice_after(text);
      if (advice.empty()) throw;
      throw Error(text + advice);
    }
  }

 private:
  int train() {
    lacks_save_ |= trainer_.best_is_of_another_set();
    if (trainer_.best_is_of_another_set() && !measure_best()) return stop_interrupted();
    const bool late = first_step_ % config_.eval_interval == 0 && !trainer_.is_validated();
    if (late && first_step_ < config_.max_iters && !validate())  // it was stopped before that
      return stop_interrupted();
    if (first_step_ < config_.max_iters && lacks_sample() && !show_sample())
      return stop_interrupted();
    if (first_step_ < config_.max_iters) wait_for_report();
    while (trainer_.steps_done() < config_.max_iters) {
      step();
      const int64_t step = shown_step_ = trainer_.steps_done();
      if (step % config_.log_interval == 0 || step == config_.max_iters) report();
      if (on_cpu_ || step % kMostSkipped == 0) check_skipped();
      if (is_interrupted() || processes().is_asked_to_stop) return stop_interrupted();
      if (step == config_.max_iters) break;
      if (step % config_.eval_interval == 0 && !validate()) return stop_interrupted();
      if (config_.sample_interval > 0 && step % config_.sample_interval == 0 && !show_sample())
        return stop_interrupted();
      uncounted([&] { return keep_up(); });
      if (config_.max_minutes > 0 && seconds_since(start_) > 60 * config_.max_minutes)
        return stop_early("Time is up", kOk);
    }
    return finish();
  }

  // Was the run that is resumed stopped before its sample was whole?
  bool lacks_sample() const {
    const std::vector<int64_t>& all = metrics_.table().samples();
    return config_.sample_interval > 0 && first_step_ > 0 &&
           first_step_ % config_.sample_interval == 0 &&
           std::find(all.begin(), all.end(), first_step_) == all.end();
  }

  // What is done by time.
  bool keep_up() {
    if (saves_.is_due(seconds_since(start_))) save();
    page_.keep_fresh();
    return true;
  }
  void save() {
    folder_.keep_locked();
    trainer_.save(kLastCheckpoint);
    saves_.saved(seconds_since(start_));
  }

  void step() {
    const bool measured = page_.is_due();
    if (measured) uncounted([&] { return page_.before_step(); });
    profile_.step(trainer_);
    if (measured) uncounted([&] { return page_.after_step(); });
    if (profile_.is_done())
      beside_training([&] { return profile_.finish(console_, config_), true; });
  }

  // How to go on; empty if that is not known. What fails here is not told: the error counts.
  std::string advice_after(const std::string& error) {
    const nlohmann::json saved =
        checkpoint_state(config_.out_dir, checkpoint_to_resume(config_.out_dir));
    if (processes().size() > 1 || !saved.contains("step")) return "";
    try {
      nlohmann::ordered_json run = page_.run(RunState::failed);
      if (run.at("config").empty()) set_config(run, {{"config", to_json(trainer_.given_config())}});
      run["error"] = error;
      add_command(run, config_.out_dir);
      return fmt::format("\nThe run is kept as after step {}; {}: {}", saved.at("step").dump(),
                         run.at("command_note").get<std::string>(),
                         run.at("command").get<std::string>());
    } catch (const std::exception&) {
      return "";
    }
  }

  // The page of a run that an error ends says so, too. What fails here is not told.
  void note_failure(const std::string& error) {
    waiting_.reset();
    try {
      metrics_.write({{"step", trainer_.steps_done()}, {"error", error}});
    } catch (const std::exception&) {
    }
    page_.write(RunState::failed);
  }

  static Trainer make_trainer(const TrainConfig& config, const std::optional<SavedRun>& saved,
                              Console& console) {
    const Waiting waiting(console, config.data.empty() ? "making the model" : "data and model");
    return Trainer(config, saved, nullptr);
  }

  // The live line until the first report.
  void wait_for_report() {
    shown_step_ = trainer_.steps_done();
    waiting_.emplace(console_, [this](double seconds) {
      return std::vector<Item>{{fmt::format("step {:>5}", shown_step_ + 1), 0},
                               {fmt::format("/{}", config_.max_iters), 2},
                               {" ... " + clock_text(seconds), 1}};
    });
  }

  // Calls f(), work between steps. If it throws, the steps since the last save are saved first.
  template <class F>
  auto or_save(F&& f) {
    try {
      return f();
    } catch (...) {
      save();
      throw;
    }
  }
  // A line of metrics that cannot be written is saved with the steps.
  template <class F>
  void log(const nlohmann::ordered_json& object, F&& write) {
    or_save([&] {
      folder_.keep_locked();
      try {
        write(object);
      } catch (...) {
        trainer_.keep_unwritten(json_line(object));
        throw;
      }
    });
  }
  Evaluation evaluate(bool whole) {
    waiting_.reset();
    ShownShare shown(console_, "validation", is_interrupted);
    return or_save([&] { return trainer_.evaluate(whole, shown.stop()); });
  }
  // False: interrupted.
  bool measure_best() {
    return beside_training([&] {
      ShownShare shown(console_, "validation", is_interrupted);
      trainer_.measure_best_again(shown.stop());
      if (!trainer_.best_is_of_another_set())
        console_.paragraph(fmt::format("best, of step {}, has a validation loss of {} here",
                                       *trainer_.best_step(),
                                       fixed_number(trainer_.best_val_loss())));
      return !is_interrupted();
    });
  }
  // Returns f(), and leaves its time out of the training's.
  template <class F>
  bool uncounted(F&& f) {
    const Clock::time_point begin = Clock::now();
    const bool result = f();
    last_report_ += Clock::now() - begin;
    return result;
  }
  // The same for what shows lines of its own.
  template <class F>
  bool beside_training(F&& f) {
    waiting_.reset();
    return uncounted(f);
  }

  void report() {
    waiting_.reset();
    const Progress progress = trainer_.progress();
    const double seconds = seconds_since(last_report_);
    const int64_t step = trainer_.steps_done(), steps = step - reported_step();
    const double ms = 1000 * seconds / static_cast<double>(steps),
                 rate = static_cast<double>(progress.tokens) / seconds;
    training_seconds_ += seconds;
    nlohmann::ordered_json object{{"step", step}, {"train_loss", progress.loss}};
    if (progress.best_possible) object["best_possible"] = *progress.best_possible;
    object.update({{"lr", progress.lr},
                   {"grad_norm", progress.grad_norm},
                   {"tokens_per_s", rate},
                   {"ms", ms},
                   {"elapsed_s", elapsed_s()},
                   {"memory_mb", memory_mb()},
                   {"skipped", progress.skipped}});
    if (processes().size() > 1) {  // of a step; what was not waited for is hidden behind backward
      const auto [travel, wait] = std::exchange(processes().times, {});
      object["travel_ms"] = 1000 * travel / static_cast<double>(steps);
      object["wait_ms"] = 1000 * wait / static_cast<double>(steps);
    }
    object["train_set"] = training_set_;
    object["speed_set"] = speed_set_;
    if (steps != config_.log_interval) object["steps"] = steps;  // over which the means are
    log(object, [&](const auto& line) { metrics_.write(line); });
    const auto items =
        progress_items({step, config_.max_iters, rate, ms, seconds_left()}, progress);
    kept_lines_.keep(step, seconds_since(start_)) ? console_.line(items) : console_.live(items);
    if (progress.skipped > skipped_) {
      console_.paragraph(console_.yellow(
          fmt::format("step {}: {} skipped so far: a loss or gradient was not finite", step,
                      counted(progress.skipped, "step"))));
      skipped_ = progress.skipped;
    }
    page_.keep_fresh();
    last_reported_ = step;
    last_report_ = Clock::now();
  }
  // What it trains on, in words: losses are compared only where that is the same.
  std::string training_set() const {
    const int64_t rows = config_.batch_size * config_.gradient_accumulation_steps;
    const Batch first =
        trainer_.dataset().train_batch(0, 0, std::min<int64_t>(rows, 8), config_.block_size);
    return fmt::format("{} rows of {}, such as {}", rows, trainer_.dataset().summary(),
                       crc64(std::as_bytes(std::span(first.x))));
  }
  // What else the speed of a step depends on.
  std::string speed_set() const {
    const TrainConfig& run = trainer_.config();  // its threads and parts are known
    const FieldGuard threads(&Context::threads, run.threads);
    return fmt::format(" on {}, done by {}; {} processes, {} parts, {}{}{}",
                       describe_machine(parse_device(run.device)),
                       std::min(openmp_threads(), run.threads), processes().size(), run.batch_parts,
                       run.dtype, run.composed ? ", composed" : "",
                       run.recompute ? ", recomputed" : "");
  }
  static uint64_t five_digits(const std::string& set) {
    return crc64(std::as_bytes(std::span(set))) % 100'000;
  }
  double seconds_left() const {
    const double left = metrics_.table().seconds_left(config_.max_iters).value_or(0),
                 most = 60 * config_.max_minutes - seconds_since(start_);
    return config_.max_minutes > 0 ? std::min(left, std::max(most, 0.0)) : left;
  }
  // Of the whole run, also of what earlier processes did of it.
  double elapsed_s() const {
    return std::round(1000 * (elapsed_before_ + seconds_since(start_))) / 1000;
  }
  double memory_mb() const {
    const Device device = parse_device(config_.device);
    const int64_t bytes = on_cpu_ ? resident_memory() : memory_stats(device).bytes_in_use;
    return std::round(static_cast<double>(bytes) / 1e5) / 10;
  }
  int64_t reported_step() const { return std::max(last_reported_, first_step_); }

  void check_skipped() {
    const int64_t in_a_row = trainer_.skipped().in_a_row;
    if (in_a_row < kMostSkipped) return;
    if (trainer_.steps_done() > reported_step()) report();  // how many were skipped
    trainer_.check_finite();                                // names a parameter
    const std::string first = trainer_.find_non_finite();
    detail::fail({in_a_row,
                  " steps in a row had a loss or gradient that is not finite; the first such value "
                  "came from ",
                  first.empty() ? "an earlier step" : first, after_a_failure()});
  }
  std::string after_a_failure() const {
    const bool saved = checkpoint_exists(config_.out_dir, kLastCheckpoint);
    return std::string("; try ") + kLowerRate +
           (saved ? ". The last checkpoint in " + config_.out_dir + " is from before" : "");
  }

  // False: interrupted, before anything was saved.
  bool validate() {
    return beside_training([&] { return validate_and_save(); });
  }
  bool validate_and_save() {
    const Evaluation evaluation = evaluate(false);
    if (!evaluation.whole) return false;
    check_validation(evaluation);
    std::vector<Item> items{{fmt::format("step {:>5}  validation {}", trainer_.steps_done(),
                                         loss_text(evaluation.loss, evaluation.best_possible)),
                             0}};
    if (evaluation.best_possible)
      items.push_back({", " + percent_above(evaluation.loss, *evaluation.best_possible), 1});
    if (const auto bits = evaluation.bits_per_byte())
      items.push_back({", " + fixed_number(*bits) + " bits/byte", 2});
    if (evaluation.answers) items.push_back({", " + answers_text(*evaluation.answers), 1});
    items.push_back({fmt::format("  after {}", clock_text(seconds_since(start_))), 3});
    console_.line(console_.green(fitted(items, console_.columns())));
    write_validation(evaluation);
    if (trainer_.note_validation(evaluation.loss))
      save_best();  // first: the last one says that there is this one
    save();
    tell_overfitting();
    return true;
  }
  static std::string bits_text(const Evaluation& evaluation) {
    const auto bits = evaluation.bits_per_byte();
    return bits ? ", " + fixed_number(*bits) + " bits per byte" : "";
  }
  // Once.
  void tell_overfitting() {
    const MetricsTable& lines = metrics_.table();
    const nlohmann::ordered_json run{{"metrics", lines.training()},
                                     {"validation", lines.validation()},
                                     {"train_tokens", trainer_.dataset().train_tokens()},
                                     {"config", to_json(config_)}};
    const std::string text = overfitting(run);
    if (text.empty() || std::exchange(told_overfitting_, true)) return;
    console_.paragraph(console_.yellow("fault: " + text));
  }
  void save_best() { trainer_.save(kBestCheckpoint); }

  void check_validation(const Evaluation& evaluation) {
    if (std::isfinite(evaluation.loss)) return;
    trainer_.check_finite();
    detail::fail({"the validation loss after step ", trainer_.steps_done(), " is ",
                  fixed_number(evaluation.loss), after_a_failure()});
  }

  // sampled: on the batches of all evaluations, if this is the one on the whole set.
  void write_validation(const Evaluation& evaluation, const Evaluation* sampled = nullptr) {
    nlohmann::ordered_json object{{"step", trainer_.steps_done()}, {"val_loss", evaluation.loss}};
    if (const auto bits = evaluation.bits_per_byte()) object["val_bpb"] = *bits;
    if (evaluation.answers) object["val_answers"] = *evaluation.answers;
    const std::string& set = trainer_.validation_set();
    object["val_set"] = five_digits(set);
    if (sampled) object["sampled_loss"] = sampled->loss;
    if (evaluation.best_possible) object["best_possible"] = *evaluation.best_possible;
    object["elapsed_s"] = elapsed_s();
    log(object, [&](const auto& line) { metrics_.write_validation(line); });
  }

  // Writes as much as the context holds, because the model cannot see a story's start beyond that.
  // False: interrupted.
  bool show_sample() {
    return beside_training([&] { return or_save([&] { return write_a_sample(); }); });
  }
  bool write_a_sample() {
    const ContextGuard guard;
    context().random = {.seed = static_cast<uint64_t>(config_.seed),
                        .step = static_cast<uint64_t>(trainer_.steps_done())};
    LanguageModel& model = trainer_.evaluated_model();
    model.eval();
    GenerateOptions options;
    options.max_new_tokens = config_.block_size - 1;
    std::string sample;
    console_.line(console_.dim("--- the model writes:"));
    try {
      write_sample(model, trainer_.dataset().tokenizer(), trainer_.sample_start(), options,
                   [&](const std::string& text) {
                     console_.write(text);
                     sample += text;
                     if (is_interrupted()) throw Interrupted();
                   });
    } catch (const Interrupted&) {
    }
    console_.line("\n" + console_.dim("---"));
    if (!is_interrupted()) metrics_.write_sample(trainer_.steps_done(), sample);
    return !is_interrupted();
  }

  int stop_early(const char* why, int code) {
    waiting_.reset();
    uncounted([&] { return save(), true; });
    if (trainer_.steps_done() > reported_step()) report();
    page_.tell_findings(RunState::stopped, told_overfitting_);
    page_.write(RunState::stopped);
    console_.paragraph(fmt::format("{} after step {}; saved. To go on: {}", why,
                                   trainer_.steps_done(), resume_typed()));
    return code;
  }

  // A signal that came to another process alone counts as SIGTERM.
  int stop_interrupted() {
    const int signal = noted_signal() > 0 ? noted_signal() : SIGTERM;
    return stop_early("Interrupted", kSignal + signal);
  }

  // With --data, eval measures the whole of it, also what is trained on.
  std::string eval_typed() const {
    return data_typed(config_).empty() ? typed("eval ") + out_dir_typed()
                                       : resume_typed() + " --final_eval whole";
  }
  std::string resume_typed() const {
    return typed("train --init_from resume ") + out_dir_typed() + data_typed(config_);
  }
  std::string out_dir_typed() const { return option_typed("--out_dir", config_.out_dir); }

  // The best model is chosen by the loss of the same batches every time. False: interrupted.
  bool evaluate_at_end() {
    const Clock::time_point begin = Clock::now();
    const Evaluation sampled = evaluate(false);
    const double seconds = seconds_since(begin);
    if (!sampled.whole) return false;
    check_validation(sampled);
    last_loss_ = sampled.loss;
    if (trainer_.note_validation(sampled.loss)) {
      save_best();
      save();
    }
    if (config_.eval_iters == 0) {
      show_final(sampled, seconds);
      return true;
    }
    const auto windows = static_cast<double>(trainer_.dataset().val_windows(config_.block_size)),
               rows = static_cast<double>(config_.eval_iters * config_.batch_size);
    const double estimate = seconds * windows / rows;
    if (config_.final_eval == "auto" && estimate > std::max(5.0, training_seconds_ / 10)) {
      write_validation(sampled);
      console_.paragraph(fmt::format("{}  over {}; the whole set would take about {}: {}",
                                     final_text(sampled), sampled_text(), clock_text(estimate),
                                     eval_typed()));
      return true;
    }
    const Clock::time_point whole_begin = Clock::now();
    const Evaluation whole = evaluate(true);
    if (whole.whole) show_final(whole, seconds_since(whole_begin), &sampled);
    return whole.whole;
  }
  std::string sampled_text() const {
    return config_.eval_iters == 0 ? "the whole set"
                                   : fmt::format("{} sampled batch{}", config_.eval_iters,
                                                 config_.eval_iters == 1 ? "" : "es");
  }
  void show_final(const Evaluation& whole, double seconds, const Evaluation* sampled = nullptr) {
    write_validation(whole, sampled);
    const std::string cost = seconds < 1 ? "" : ", in " + clock_text(seconds);
    console_.paragraph(
        fmt::format("{}  over all {} validation tokens{}", final_text(whole), whole.tokens, cost));
  }
  std::string final_text(const Evaluation& evaluation) const {
    std::string text =
        fmt::format("validation {}", loss_text(evaluation.loss, evaluation.best_possible));
    if (evaluation.best_possible)
      text += fmt::format(": {}", percent_above(evaluation.loss, *evaluation.best_possible));
    if (evaluation.answers) text += ", " + answers_text(*evaluation.answers);
    return console_.bold(console_.green(text + bits_text(evaluation)));
  }

  int finish() {
    const bool had_all = config_.init_from == "resume" && first_step_ == config_.max_iters;
    if (!had_all || lacks_save_) save();  // what follows takes long
    if (config_.final_eval == "off") {
      console_.line(fmt::format(
          "no evaluation after the last step (final_eval off); to evaluate: {}", eval_typed()));
    } else if (!evaluate_at_end()) {
      return stop_interrupted();
    }
    if (!show_sample()) return stop_interrupted();
    page_.tell_findings(RunState::finished, told_overfitting_);
    page_.write(RunState::finished);
    const std::string done =
        had_all ? fmt::format("{} has all its {} steps; --max_iters trains it longer",
                              config_.out_dir, first_step_)
                : "Trained in " + clock_text(seconds_since(start_));
    console_.paragraph(fmt::format("{}. Saved in {}/ckpt. To let it write more: {}{}", done,
                                   config_.out_dir, typed("sample "), out_dir_typed()));
    if (checkpoint_exists(config_.out_dir, kBestCheckpoint)) console_.paragraph(best_text());
    profile_.finish(console_, config_);
    return kOk;
  }

  // Losses that can be compared: of the same batches.
  std::string best_text() const {
    const auto step = trainer_.best_step();
    if (step == trainer_.steps_done()) return "sample takes best, which is the last step";
    const std::string last = last_loss_ ? "; the last has " + fixed_number(*last_loss_) : "";
    return fmt::format("sample takes best ({}loss {} on {}{}); --checkpoint ckpt takes the last",
                       step ? fmt::format("step {}, ", *step) : "",
                       fixed_number(trainer_.best_val_loss()), sampled_text(), last);
  }

  const TrainConfig config_;
  OutFolder& folder_;
  Console& console_;
  StepProfile profile_;
  Trainer trainer_;
  Metrics metrics_;
  RunReport page_;
  Clock::time_point start_, last_report_;
  KeptLines kept_lines_;
  SaveTimes saves_;
  const bool on_cpu_ = parse_device(config_.device).is_cpu();  // where asking costs nothing
  static constexpr int64_t kMostSkipped = 10;                  // skipped steps in a row
  double training_seconds_ = 0, elapsed_before_ = 0;           // elapsed: in earlier processes
  uint64_t training_set_ = 0, speed_set_ = 0;                  // numbers for what these say
  std::optional<double> last_loss_;  // after the last step, as best_val_loss() is measured
  bool told_overfitting_ = false;
  std::string rate_text_ = odd_rate(config_);
  int64_t first_step_, last_reported_ = 0;
  bool lacks_save_;  // is what is resumed not what ckpt holds?
  int64_t skipped_;
  std::atomic<int64_t> shown_step_ = 0;
  std::optional<Waiting> waiting_;  // the last member: its thread looks at others
};

// The options of train that are not in its config.
struct TrainOptions {
  bool print_config = false, overwrite = false, check = false;
  bool names_out_dir = false;
  std::set<std::string> names, typed;  // of settings of the model; typed: not in a config file
  std::string profile;                 // a file
  std::string unused;                  // what is wrong with an option that does nothing
};

// Options override the config file, which overrides `config`. first: which run this is about is not
// known yet. kept: settings that are that run's. False: help was printed instead.
bool parse_into(TrainConfig& config, const Arguments& arguments, TrainOptions& options, bool first,
                const std::set<std::string>& kept = {}) {
  CommandOptions command("train", "Trains a GPT; with no options, on the built-in stories.");
  command.add_fields(config);
  command.take_config_file();
  command.flag("--overwrite", options.overwrite, "delete the run in out_dir, and start anew there");
  command.flag("--print_config", options.print_config, "print the effective config and stop");
  command.flag("--check", options.check,
               "compare 3 steps with fused ops and with their definitions, name the op where they "
               "part, and stop; writes nothing");
  command.add("--profile", &options.profile,
              "print where the time of some steps goes, op by op, and write a trace of 3 to this "
              "file (runs with batch_parts 1)");
  command.keep(kept);
  const bool parsed = command.parse(arguments, first);
  // It names other data than a run of a text has.
  if (command.given("--dataset") && !command.given("--data") && config.dataset == "fables") {
    config.data.clear();
    config.val_data.clear();
  }
  options.unused = unused_option(command, config);
  options.names_out_dir = command.given("--out_dir");
  std::vector<std::string> names = model_fields(config);
  for (const ModelSetting& setting : config.model_settings) names.push_back(setting.name);
  names.insert(names.end(), {"tokenizer", "optimizer"});
  for (const std::string& name : names) {
    if (command.given("--" + name) && name != "optimizer") options.names.insert(name);
    if (command.is_typed("--" + name)) options.typed.insert(name);
  }
  return parsed;
}

// The settings of these names are those of a run that is gone on from. Throws if others were typed;
// where a config file has others, which is the one that the run began with, a line says so.
void keep_settings(const std::set<std::string>& names, const std::set<std::string>& typed,
                   const SavedRun& saved, TrainConfig& asked) {
  std::error_code unknown;
  for (const std::filesystem::path& run : {saved.folder.parent_path(), saved.folder})
    if (std::filesystem::equivalent(asked.tokenizer, run, unknown))
      asked.tokenizer = saved.config.tokenizer;  // the run names its own
  nlohmann::json mine = to_json(asked);
  const nlohmann::json its = to_json(saved.config);
  std::string of_file, kept;
  for (const std::string& name : names) {
    if (!its.contains(name) || !mine.contains(name) || mine.at(name) == its.at(name)) continue;
    const std::string own = quoted(its.at(name)), other = quoted(mine.at(name));
    if (typed.count(name) > 0)
      throw UsageError(fmt::format("--{} is {}, but {} has {}; leave the option out", name, other,
                                   saved.folder.string(), own));
    const char* comma = kept.empty() ? "" : ", ";
    of_file += fmt::format("{}{} {}", comma, name, other);
    kept += fmt::format("{}{} {}", comma, name, own);
    mine[name] = its.at(name);
  }
  if (kept.empty()) return;
  from_json(mine, asked);
  log_message("--config: not taken: ", of_file, "; ", saved.folder.string(), " keeps ", kept);
}

std::set<std::string> names_of_model(const TrainConfig& config) {
  const std::vector<std::string> names = model_fields(config);
  return {names.begin(), names.end()};
}

// The run whose weights a new run begins with. Options that contradict its model are refused.
SavedRun load_start_for(TrainConfig& config, const Arguments& arguments, TrainOptions& options,
                        Console& console) {
  as_usage("", [&] { start_of(config); });
  const Waiting waiting(console, "loading the weights");
  SavedRun start = load_start(config);
  TrainConfig asked = config;
  if (options.names.count("model") == 0) asked.model = start.config.model;
  keep_settings(options.names, options.typed, start, asked);
  config = with_model_of(start, TrainConfig());
  parse_into(config, arguments, options, false, names_of_model(config));
  config = with_model_of(start, config);
  return start;
}

void print_config(const TrainConfig& config) {
  const size_t columns = shown_columns();
  const auto print = [&](const char* name, const auto& value, const char* help, const Limits&) {
    const nlohmann::json json = value;
    const bool unset = json.is_array() && json.empty();  // the config file has no empty lists
    const auto text = [&](bool ascii) {
      return json.dump(-1, ' ', ascii, nlohmann::json::error_handler_t::replace);
    };
    const bool controls = printable(text(false)) != text(false);  // such as DEL, which JSON allows
    TextStream comment(filled(help, columns - 2, 0));
    for (std::string line; std::getline(comment, line);) std::cout << "# " << line << "\n";
    std::cout << fmt::format("{}{} = {}\n", unset ? "# " : "", name, text(controls));
  };
  for_each_field(config, print);
}

// Throws if the run, or --profile, would replace a file that the run reads.
void check_files_read(const TrainConfig& config, const std::string& profile,
                      const OutFolder* folder, const SavedRun* resumed) {
  const auto check = [&](const char* option, const std::vector<std::filesystem::path>& files) {
    if (!profile.empty()) check_not_read("--profile", profile, files);
    if (folder != nullptr) folder->check_not_read(option, files);
  };
  check("--tokenizer", {config.tokenizer});
  const std::string task = config.task();
  if (!task.empty())
    as_usage("--data ", [&] { TaskDataset(task, config.task_digits, config.val_fraction); });
  if (config.data.empty() || !task.empty()) return;
  const DataFiles files =
      resumed ? files_of_run(*resumed, config) : data_files(config.data, config.val_data);
  check("--data", files.train);
  check(config.val_data.empty() ? "--data" : "--val_data", files.val);
  if (!resumed && !files.val.empty() && config.val_fraction != TrainConfig().val_fraction)
    throw UsageError("--val_fraction does nothing here: " + files.val[0].string() +
                     " is what --data validates on; leave it out");
}

std::string out_dir;  // of the run, once there is one

int train(const Arguments& arguments) {
  TrainConfig config;
  TrainOptions options;
  if (!parse_into(config, arguments, options, true)) return kOk;
  const bool resumes = config.init_from == "resume",
             starts = !resumes && config.init_from != "scratch";
  if (!resumes && !starts) parse_into(config = TrainConfig(), arguments, options, false);
  TrainConfig here = config;
  if (starts) here.model_settings = model_settings();  // its model is not known yet
  if (!resumes) check_usage(here);                     // nor are the other settings of that run
  if (options.overwrite && resumes)
    throw UsageError(
        "--overwrite starts anew, and --init_from resume goes on; expected one of them");
  check_not_of_run("--profile", config.out_dir, options.profile);
  if (options.check && (config.composed || !options.profile.empty()))
    throw UsageError(
        "--check runs with fused ops and composed; leave out --composed and --profile");
  if (options.check && !data_typed(config).empty())
    throw UsageError("--check reads the data twice, and a pipe can be read once; name a file");
  const bool trains = !options.print_config && !options.check, leads = processes().leads();
  if (!trains) part_company();
  if (!leads && !trains) return kOk;
  if (processes().size() > 1 && !options.profile.empty())
    throw UsageError("--profile is of one process; leave it out, or start one");
  Console console;
  std::optional<SavedRun> saved;
  if (starts) saved = load_start_for(config, arguments, options, console);
  if (!resumes) check_usage(config);
  if (!resumes && !options.unused.empty()) throw UsageError(options.unused);
  const bool was_there = has_path(config.out_dir);
  std::optional<OutFolder> folder;  // first of all: another run may be saving there
  if (trains && leads) folder.emplace(config, options.names_out_dir, options.overwrite);
  if (resumes) {  // its config in place of the defaults
    const Waiting waiting(console, "loading the checkpoint");
    for (const char* name : {kLastCheckpoint, kBestCheckpoint})
      if (folder) finish_save(config.out_dir, name);
    const std::string name = checkpoint_to_resume(config.out_dir);
    if (!checkpoint_exists(config.out_dir, name)) {
      const std::string foreign = foreign_weights(config.out_dir);
      INK_CHECK(foreign.empty(), "resume: ", foreign);
      const Place place = place_of(config.out_dir);
      INK_CHECK(!checkpoint_exists(place.out_dir, place.name), "resume: ", config.out_dir,
                " is a checkpoint, and --out_dir a folder that holds one as ckpt; move it to "
                "FOLDER/ckpt, and name FOLDER");
      const bool is_llmc = std::find(arguments.begin(), arguments.end(), "-y") != arguments.end();
      const std::string asked = is_llmc ? "-y 1" : "--init_from resume";
      detail::fail({"resume: ",
                    was_there ? config.out_dir + " has no checkpoint to go on from"
                              : "there is no folder " + config.out_dir,
                    "; name another --out_dir, or start ",
                    holds_run(config.out_dir) ? "anew with --overwrite instead of " + asked
                                              : "a run there without " + asked});
    }
    saved = load_run_to_resume(config.out_dir);
    config = saved->config;
    std::set<std::string> kept = names_of_model(config);
    parse_into(config, arguments, options, false, kept);
    kept.merge(names_of_model(config));  // another model's, if one was named
    kept.insert({"optimizer", "tokenizer"});
    keep_settings(kept, options.typed, *saved, config);
    check_usage(config);
    if (!options.unused.empty()) throw UsageError(options.unused);
    if (config.max_iters < saved->step)
      throw UsageError(fmt::format("--max_iters {}: {} has done {} steps; expected as many or more",
                                   config.max_iters, config.out_dir, saved->step));
    if (config.data_changed && config.max_iters == saved->step)
      throw UsageError(fmt::format(
          "--data_changed: {} has all its {} steps and would learn nothing of other data; give a "
          "larger --max_iters, or measure them: {}",
          config.out_dir, saved->step, typed("eval --data FILE")));
  }
  if (options.print_config) {
    print_config(config);
    return kOk;
  }
  check_files_read(config, options.profile, folder ? &*folder : nullptr,
                   resumes ? &*saved : nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // if nobody reads the console any more, the write fails
  // A resumed run keeps its number by itself (train/arithmetic.h), on as many threads as there are.
  use_threads(resumes && config.threads == saved->config.threads ? 0 : config.threads);
  warn_of_slow_blas();
  if (options.check) {
    config.composed = false;  // also of a run that was
    return check_steps(config, saved, 3, console) ? kOk : kFailed;
  }
  if (starts)
    console.paragraph(fmt::format("{}  those of {} after step {}, trained on {}",
                                  console.bold("weights"), saved->folder.string(), saved->step,
                                  printable(saved->dataset, 200)));
  if (!leads) {
    out_dir = config.out_dir;
    watch_signals();
    Trainer(config, saved, nullptr).follow([](double) { return is_interrupted(); });
    return kOk;
  }
  TrainRun run(config, saved, options.profile, *folder, console);
  out_dir = config.out_dir;  // until here it may hold another run
  saved.reset();             // its tensors were copied
  return run.run();
}

}  // namespace

int train_command(const Arguments& arguments) {
  const auto tell = [](const std::string& text) {
    std::cerr << printable("inkling train: " + text) << "\n";
    if (out_dir.empty() || !checkpoint_exists(out_dir, checkpoint_to_resume(out_dir))) return;
    std::string note = "to go on",
                command = typed("train --init_from resume ") + option_typed("--out_dir", out_dir);
    try {
      nlohmann::ordered_json run = read_run(out_dir, RunState::failed);
      add_command(run, out_dir);
      note = run.at("command_note"), command = run.at("command");
    } catch (const std::exception&) {  // such as of a run without a log
    }
    std::cerr << "The run is kept; " << note << ", start the processes with: " << command << "\n";
  };
  return run_together([&] { return train(arguments); }, tell, is_interrupted);
}

}  // namespace ink
