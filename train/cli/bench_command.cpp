// inkling bench: measures a training step, and compares two runs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "autograd/io/atomic_file.h"
#include "autograd/io/foreign.h"
#include "autograd/memory/device_backend.h"
#include "data/file.h"
#include "train/cli/bench.h"
#include "train/cli/command_line.h"
#include "train/cli/console.h"
#include "train/cli/profile_table.h"
#include "train/cli/progress_line.h"

namespace ink {
namespace {

using nlohmann::ordered_json;

struct BenchOptions {
  std::string config = "baby", json;
  std::vector<std::string> compare;
  bool scaling = false;
};

double megabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

// Settings of `train` that do not concern a step.
const std::set<std::string> kNotOfAStep = {
    "dataset",         "data",       "val_data",       "task_digits",    "tokenizer",
    "val_fraction",    "pack",       "max_iters",      "lr_decay_iters", "min_lr",
    "warmup_iters",    "out_dir",    "init_from",      "data_changed",   "max_minutes",
    "eval_interval",   "eval_iters", "final_eval",     "log_interval",   "report",
    "sample_interval", "schedule",   "decay_fraction", "shard_optimizer"};

std::string config_help() {
  return fmt::format("sizes to start from, which the options below change: {}",
                     fmt::join(bench_names(), ", "));
}

// Options override the setup that --config names.
bool read_options(const Arguments& arguments, BenchOptions& options, BenchSetup& setup) {
  const auto parse_into = [&](BenchSetup& into, bool first) {
    CommandOptions command(
        "bench", "Measures a training step on random tokens: time, memory, and where they go.");
    command.add("--config", &options.config, config_help(), {.shows_default = true});
    command.add("--vocab_size", &into.vocab_size, "ids are below it", {.limits = {1, 1e7}});
    command.add_fields(into.config, kNotOfAStep);
    command.add("--steps", &into.steps,
                "timed steps, after two to warm up; by default as many as take ten seconds",
                {.limits = {1, 1e6}});
    command.add("--profile_steps", &into.profile_steps,
                "further steps whose ops are timed; by default a quarter of --steps",
                {.limits = {0, 1e6}});
    command.add("--weights", &into.weights,
                "a safetensors file with the model's weights and a batch, x and y (B, T)");
    command.flag("--scaling", options.scaling, "repeat with B, T, L and C doubled, one at a time");
    command.add("--json", &options.json, "write the results to this file; -: print nothing else");
    command.add(
        "--compare", &options.compare,
        "show a file of --json beside this run; with two files, compare these and run nothing",
        {.most_values = 2});
    const bool parsed = command.parse(arguments, first);
    if (!command.given("--bias")) into.config.bias = into.config.model == "gpt";
    return parsed;
  };
  BenchSetup ignored;
  if (!parse_into(ignored, true)) return false;
  const std::vector<std::string> names = bench_names();
  if (std::find(names.begin(), names.end(), options.config) == names.end())
    throw UsageError(fmt::format("--config: there are no sizes called {}{}", options.config,
                                 suggestion(options.config, names)));
  setup = bench_setup(options.config);
  const std::string model = setup.config.model;
  parse_into(setup, false);
  if (setup.config.model != model)  // which does not have the settings of these sizes
    setup.config.model_settings = ignored.config.model_settings;
  check_usage(setup.config);
  return true;
}

// ---- one run

std::string machine_text(const TrainConfig& config) {
  return describe_machine(parse_device(config.device));
}

ordered_json to_json(const BenchResult& result, const Machine& machine) {
  const TrainConfig& config = result.setup.config;
  ordered_json sizes{{"name", result.setup.name}, {"vocab_size", result.setup.vocab_size}};
  const ordered_json all = to_json(config);
  for (const auto& [name, value] : all.items()) {
    if (kNotOfAStep.count(name) == 0) sizes[name] = value;
  }
  const double rate = result.flops.total() / result.median() * 1e3;
  ordered_json levels = ordered_json::array();
  for (const MemoryLevel& level : machine.levels) {
    levels.push_back({{"read_rate", level.read_rate}, {"write_rate", level.write_rate}});
    if (std::isfinite(level.size)) levels.back()["bytes"] = level.size;
  }
  return {{"inkling", INKLING_VERSION},
          {"config", sizes},
          {"parameters", result.parameters},
          {"machine",
           {{"processor", processor_name()},
            {"device", machine_text(config)},
            {"threads", openmp_threads()},
            {"gemm", gemm_backend()},
            {"flops_per_second", machine.flops_per_second},
            {"attention_flops_per_second", machine.attention_flops_per_second},
            {"bytes_per_second", machine.bytes_per_second},
            {"levels", levels}}},
          {"step",
           {{"steps", result.times.size()},
            {"ms_median", result.median()},
            {"ms_best", result.best()},
            {"start_ms", result.start},
            {"tokens_per_second", result.tokens_per_second()},
            {"flops", result.flops.total()},
            {"flops_per_second", rate},
            {"of_peak", rate / machine.flops_per_second}}},
          {"memory",
           {{"estimate", result.estimate.total()},
            {"allocator_peak", result.allocator_peak},
            {"allocator_held", result.allocator_held},
            {"process_peak", result.process_peak},
            {"raw_allocations", result.raw_allocations},
            {"page_faults", result.page_faults}}},
          {"losses", result.losses},
          {"profiled_steps", result.profiled},
          {"ops", profile_json(result.rows, std::max<int64_t>(result.profiled, 1), machine)}};
}

void print(const BenchResult& result, const Machine& machine) {
  const BenchSetup& setup = result.setup;
  const TrainConfig& config = setup.config;
  const double rate = result.flops.total() / result.median() * 1e3;
  const auto line = [](const std::string& text) {
    std::cout << filled(text, shown_columns(), 10) << "\n";
  };
  line(fmt::format("{:<9} {}: B {}, T {}, L {}, H {}, C {}, V {}; {} parameters; dropout {}; {}",
                   setup.name, config.model, config.batch_size, config.block_size, config.n_layer,
                   config.n_head, config.n_embd, setup.vocab_size,
                   count_text(static_cast<double>(result.parameters)), config.dropout,
                   config.dtype));
  line(fmt::format("machine   {}; measured at best {:.0f} GFLOP/s, {:.1f} GB/s",
                   machine_text(config), machine.flops_per_second / 1e9,
                   machine.bytes_per_second / 1e9));
  for (const MemoryLevel& level : machine.levels) {
    const std::string name = !std::isfinite(level.size) ? "memory"
                             : level.size < 1e6
                                 ? fmt::format("caches of {:.0f} kB", level.size / 1e3)
                                 : fmt::format("caches of {:.1f} MB", level.size / 1e6);
    line(fmt::format("          {}: reads {:.0f}, writes {:.0f} GB/s", name, level.read_rate / 1e9,
                     level.write_rate / 1e9));
  }
  line(fmt::format(
      "step      {:.2f} ms median, {:.2f} best of {}; {} tokens/s; first one done {:.0f} "
      "ms after the start",
      result.median(), result.best(), result.times.size(), count_text(result.tokens_per_second()),
      result.start));
  line(
      fmt::format("work      {:.2f} GFLOP: weights times tokens, {:.2f}, and attention, {:.2f}; "
                  "{:.0f} GFLOP/s, {:.0f} % of the machine's",
                  result.flops.total() / 1e9, result.flops.weights / 1e9,
                  result.flops.attention / 1e9, rate / 1e9, 100 * rate / machine.flops_per_second));
  if (const double peak = datasheet_flops(machine_text(config)); peak > 0)
    line(fmt::format(
        "MFU       {:.1f} %: of the {:.0f} TFLOP/s of dense bf16 products that the data "
        "sheet names",
        100 * rate / peak, peak / 1e12));
  line(fmt::format(
      "memory    estimated {:.1f} MB, measured {:.1f} MB ({:+.1f} %); {:.1f} with what is kept for "
      "reuse, {:.1f} the process; {:.1f} page faults per step",
      megabytes(result.estimate.total()), megabytes(result.allocator_peak),
      100 * (static_cast<double>(result.estimate.total()) /
                 static_cast<double>(result.allocator_peak) -
             1),
      megabytes(result.allocator_held), megabytes(result.process_peak), result.page_faults));
  if (result.profiled == 0) return;
  line("");
  for (const std::string& text :
       profile_table(result.rows, result.profiled, machine, shown_columns()))
    line(text);
  if (const int64_t parts = batch_parts(config, result.parameters); parts > 1)
    line(fmt::format("The table is for steps with batch_parts 1; the steps timed above had {}.",
                     parts));
}

// ---- scaling

struct Doubled {
  const char* name;
  int64_t TrainConfig::*field;
};

// How the time grows with B, T, L and C, compared with the FLOPs.
ordered_json run_scaling(const BenchSetup& base, const BenchResult& one, bool print_it) {
  auto rows = ordered_json::array();
  if (print_it)
    std::cout << fmt::format("\nHow much each grows:\n{:<10}{:>10}{:>8}{:>8}{:>8}\n", "doubled",
                             "ms median", "time", "FLOPs", "memory");
  for (const auto& [name, field] :
       {Doubled{"batch_size", &TrainConfig::batch_size},
        Doubled{"block_size", &TrainConfig::block_size}, Doubled{"n_layer", &TrainConfig::n_layer},
        Doubled{"n_embd", &TrainConfig::n_embd}}) {
    BenchSetup setup = base;
    setup.config.*field *= 2;
    setup.profile_steps = 0;
    const BenchResult two = run_bench(setup);
    const double time = two.median() / one.median(), flops = two.flops.total() / one.flops.total(),
                 memory = static_cast<double>(two.allocator_peak) /
                          static_cast<double>(one.allocator_peak);
    rows.push_back({{"doubled", name},
                    {"ms_median", two.median()},
                    {"time", time},
                    {"flops", flops},
                    {"memory", memory}});
    if (print_it)
      std::cout << fmt::format("{:<10}{:>10.2f}{:>8.2f}{:>8.2f}{:>8.2f}\n", name, two.median(),
                               time, flops, memory);
  }
  return rows;
}

// ---- comparing

struct Figure {
  const char *section, *field, *what;
  double unit;
};
constexpr Figure kFigures[] = {{"step", "ms_median", "ms per step, median", 1},
                               {"step", "ms_best", "ms per step, best", 1},
                               {"step", "tokens_per_second", "tokens/s", 1},
                               {"step", "start_ms", "ms from start to first step", 1},
                               {"memory", "allocator_peak", "MB of tensors", 1e6},
                               {"memory", "process_peak", "MB of process", 1e6}};

// The numbers of a result that a comparison shows.
struct Compared {
  std::vector<double> figures;           // as kFigures
  std::map<std::string, double> phases;  // "linear forward": ms, of every op and phase
  ordered_json config;
};

Compared compared(const ordered_json& results) {
  Compared c{.figures = {}, .phases = {}, .config = results.at("config")};
  for (const Figure& f : kFigures)
    c.figures.push_back(results.at(f.section).at(f.field).get<double>() / f.unit);
  for (const auto& row : results.at("ops")) {
    for (const char* phase : {"forward", "backward", "other"}) {
      if (row.contains(phase))
        c.phases[row.at("op").get<std::string>() + " " + phase] = row.at(phase).at("ms");
    }
  }
  return c;
}

Compared read_results(const std::string& file) {
  const std::string text = read_file(file);
  const ordered_json results = with_prefix(file, [&] { return parse_json(text); });
  try {
    return compared(results);
  } catch (const nlohmann::json::exception&) {
    detail::fail({file, ": expected a file that bench --json wrote"});
  }
}

void print_comparison(const Compared& a, const Compared& b, const std::string& name_a,
                      const std::string& name_b) {
  // 78 columns; on a narrow terminal names are cut, and figures closer.
  const size_t columns = std::min<size_t>(shown_columns(), 78), figure = columns < 78 ? 11 : 14,
               ratios = columns < 78 ? 7 : 10,
               names = columns - std::min(columns - 12, 2 * figure + ratios);
  const auto row = [&](const std::string& what, double x, double y) {
    const std::string ratio = y > 0 ? fmt::format("{:>{}.3f}", x / y, ratios) : "";
    std::cout << printable(fmt::format("{:<{}}{:>{}.{}f}{:>{}.{}f}{}\n", what.substr(0, names - 1),
                                       names, x, figure, columns < 78 ? 2 : 3, y, figure,
                                       columns < 78 ? 2 : 3, ratio));
  };
  std::cout << fmt::format("\n{:<{}}{:>{}}{:>{}}{:>{}}\n", "", names, name_a, figure, name_b,
                           figure, "ratio", ratios);
  for (size_t i = 0; i < a.figures.size(); ++i) row(kFigures[i].what, a.figures[i], b.figures[i]);
  std::map<std::string, double> before = b.phases, now = a.phases;
  for (const auto& entry : before) now.try_emplace(entry.first, 0);
  std::vector<std::pair<std::string, double>> sorted(now.begin(), now.end());
  std::stable_sort(sorted.begin(), sorted.end(), [&](const auto& x, const auto& y) {
    return std::max(x.second, before[x.first]) > std::max(y.second, before[y.first]);
  });
  for (const auto& [what, time] : sorted) row(what, time, before[what]);
  if (a.config == b.config) return;
  std::cout << "The two are of different settings:\n";
  for (const auto& [name, value] : a.config.items()) {
    const ordered_json other =
        b.config.is_object() ? b.config.value(name, ordered_json()) : b.config;
    if (value != other)
      std::cout << fmt::format("  {} {} and {}\n", printable(name), quoted(value), quoted(other));
  }
}

}  // namespace

int bench_command(const Arguments& arguments) {
  const double before_main = 1000.0 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  BenchOptions options;
  BenchSetup setup;
  if (!read_options(arguments, options, setup)) return kOk;
  const auto& compare = options.compare;
  check_not_read("--json", options.json, {compare.begin(), compare.end()});
  check_not_read("--json", options.json, {setup.weights});
  std::vector<Compared> others;
  for (const std::string& file : compare)
    others.push_back(with_prefix("--compare", [&] { return read_results(file); }));
  if (others.size() == 2) {
    print_comparison(others[0], others[1], "first", "second");
    return kOk;
  }
  const bool quiet = is_stdout(options.json);
  if (!quiet) check_writable("--json", options.json);
  warn_of_slow_blas();
  Console console;
  BenchResult result = [&] {
    if (quiet) return run_bench(setup);
    ShownShare shown(console, "measuring");
    setup.on_share = shown.stop();
    return run_bench(setup);
  }();
  setup.on_share = {};
  result.start += before_main;
  const Machine machine =
      measure_machine(parse_device(setup.config.device), setup.config.autocast());
  if (!quiet) print(result, machine);
  ordered_json json = to_json(result, machine);
  if (options.scaling) json["scaling"] = run_scaling(setup, result, !quiet);
  if (quiet) {
    std::cout << json.dump(2) << "\n";
  } else if (!options.json.empty()) {
    with_prefix("--json", [&] { write_file(options.json, json.dump(2) + "\n"); });
  }
  if (!others.empty() && !quiet) print_comparison(compared(json), others[0], "this run", "before");
  return kOk;
}

}  // namespace ink
