#include "train/cli/introduction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/base/parallel.h"
#include "autograd/memory/device_backend.h"
#include "train/parallel/together.h"
#include "train/report/numbers.h"
#include "train/report/run_data.h"

namespace ink {
namespace {

// "h.0.attn.weight" -> "h.*.attn.weight"
std::string without_numbers(const std::string& name) {
  std::string kind;
  for (size_t at = 0, end; at < name.size(); at = end + 1) {
    end = std::min(name.find('.', at), name.size());
    const bool is_number =
        name.find_first_not_of("0123456789", at) == end && end > at && end < name.size();
    kind += is_number ? "*." : name.substr(at, end + 1 - at);
  }
  return kind;
}

// One line per kind of parameter: those of blocks that are alike are one, h.*. Where the terminal
// is too narrow for the table, its columns are.
void print_parameters(Console& console, Trainer& trainer) {
  struct Row {
    std::string name, shape;
    int64_t elements;
    std::string count = {};
  };
  std::vector<Row> rows;
  for (const auto& [name, parameter] : trainer.model().named_parameters()) {
    const Row row{without_numbers(name), detail::joined({parameter.shape()}), parameter.numel()};
    const auto alike = std::find_if(rows.begin(), rows.end(), [&](const Row& other) {
      return other.name == row.name && other.shape == row.shape;
    });
    alike == rows.end() ? rows.push_back(row) : void(alike->elements += row.elements);
  }
  for (Row& row : rows) row.count = std::to_string(row.elements);
  size_t indent = 9, names = 24, shapes = 14, counts = 12;
  const size_t columns = console.columns();
  if (indent + names + shapes + counts + 2 > columns) {
    indent = 2, names = shapes = counts = 0;
    for (const Row& row : rows) {
      names = std::max(names, row.name.size());
      shapes = std::max(shapes, row.shape.size());
      counts = std::max(counts, row.count.size());
    }
    if (indent + names + shapes + counts + 2 > columns) names = shapes = counts = 0;
  }
  for (const Row& row : rows)
    console.line(console.dim(filled(
        fmt::format("{:{}}{:<{}} {:<{}} {:>{}}", "", indent, middle_cut(row.name, columns - indent),
                    names, row.shape, shapes, row.count, counts),
        columns, indent + 2)));
}

// "2 threads", or the GPU's name. A resumed run keeps the threads with which it began.
std::string hardware(const TrainConfig& config) {
  const Device device = parse_device(config.device);
  const FieldGuard threads(&Context::threads, config.threads);
  const std::string text = describe(device);
  const int64_t here = openmp_threads();
  if (device.is_cuda() || here == config.threads) return text;
  if (here < config.threads) return fmt::format("{}, whose work {} does here", text, here);
  return fmt::format("{} of {}, as it began (--threads {} changes last bits)", text, here, here);
}

// Threads and memory are those of each process.
std::string of_processes(const std::string& text) {
  const int64_t n = processes().size();
  return n > 1 ? fmt::format("{} processes of {}", n, text) : text;
}

}  // namespace

std::string changed_rate(const TrainConfig& now, const SavedRun& saved) {
  const auto lr = [&](const TrainConfig& config) { return config.schedule()(saved.step); };
  const auto steps = [](const TrainConfig& config) {
    return config.lr_decay_iters < 0 ? config.max_iters : config.lr_decay_iters;
  };
  const double before = lr(saved.config), after = lr(now);
  if (std::abs(after - before) <= 0.01 * std::max(after, before)) return "";
  const std::string text =
      fmt::format("the learning rate goes on at {:.2e}, where it was {:.2e}", after, before);
  TrainConfig kept = now;
  kept.lr_decay_iters = steps(saved.config);
  return std::abs(lr(kept) - before) > 0.01 * before  // other settings changed it, too
             ? text
             : fmt::format(
                   "{}: its schedule has {} steps instead of {}; --lr_decay_iters {} keeps it",
                   text, steps(now), steps(saved.config), steps(saved.config));
}

std::string odd_rate(const TrainConfig& config) {
  const int64_t steps = config.lr_decay_iters < 0 ? config.max_iters : config.lr_decay_iters;
  const bool falls = config.schedule_name != "constant" && steps <= config.max_iters &&
                     config.warmup_iters < config.max_iters;
  if (falls && config.min_lr > config.learning_rate)
    return fmt::format(
        "the learning rate rises to {:.1e}: --min_lr is above --learning_rate, {:.1e} (--min_lr -1 "
        "is a tenth of it)",
        config.min_lr, config.learning_rate);
  const TrainConfig initial;
  const bool is_asked =
      config.warmup_iters > initial.warmup_iters || config.learning_rate != initial.learning_rate;
  if (!is_asked || config.warmup_iters < config.max_iters) return "";
  const auto shown = [](double rate) { return fmt::format("{:.1e}", rate); };
  const std::string last = shown(config.schedule()(std::max<int64_t>(config.max_iters, 1) - 1)),
                    highest = shown(config.learning_rate);
  if (last == highest) return "";
  return fmt::format(
      "the learning rate ends at {} and never gets to {}: --warmup_iters {} is the whole run", last,
      highest, config.warmup_iters);
}

void introduce(Console& console, Trainer& trainer, const std::filesystem::path& report,
               const std::string& rate) {
  const LanguageModel& model = trainer.model();
  const TrainConfig& config = trainer.config();
  console.paragraph(fmt::format("{}  {}", console.bold("data "), trainer.dataset().summary()));
  console.paragraph(fmt::format("{}  {}", console.bold("model"), model_text(config, model)));
  print_parameters(console, trainer);
  const MemoryEstimate& memory = trainer.memory();
  const auto megabytes = [](int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  console.paragraph(fmt::format(
      "{}  about {:.0f} MB{}: {:.0f} for parameters and moments, {:.0f} for gradients and "
      "activations",
      console.bold("memory"), megabytes(memory.total()),
      processes().size() > 1 ? " in each process" : "", megabytes(memory.model),
      megabytes(memory.gradients + memory.activations)));
  console.paragraph(fmt::format("{}  {} of {} x {} tokens, {}; Ctrl-C saves and stops",
                                console.bold("run  "), counted(config.max_iters, "step"),
                                config.batch_size * config.gradient_accumulation_steps,
                                config.block_size, of_processes(hardware(config))));
  if (!report.empty())
    console.paragraph(fmt::format("{}  {}, renewed while it trains; a browser shows it",
                                  console.bold("report"), report.string()));
  if (trainer.steps_done() > 0 || config.init_from == "resume")
    console.paragraph(
        fmt::format("resumed after step {} from {}", trainer.steps_done(), config.out_dir));
  if (!rate.empty()) console.paragraph(rate);
  const int64_t windows = trainer.dataset().val_windows(config.block_size),
                drawn = config.eval_iters * config.batch_size;
  if (drawn > windows)
    console.paragraph(
        fmt::format("an evaluation draws {} windows of validation text, which has {}: "
                    "--eval_iters 0 takes each once, in less time",
                    drawn, windows));
  console.line("");
}

}  // namespace ink
