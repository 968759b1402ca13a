// inkling suggest: sizes for a text and a time, by this machine's measured speed.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "autograd/io/log.h"
#include "data/data_files.h"
#include "train/cli/bench.h"
#include "train/cli/command_line.h"
#include "train/cli/console.h"
#include "train/cli/suggest.h"
#include "train/cli/waiting.h"

namespace ink {
namespace {

// A few real steps.
void measure(Suggestion& size) {
  BenchSetup setup;
  setup.config = size.config;
  setup.vocab_size = size.vocab_size;
  setup.steps = 5;
  setup.profile_steps = 0;
  const BenchResult result = run_bench(setup);
  size.seconds = result.best() / 1000;
  size.parameters = result.parameters;
}

// A line of the table, of which narrow terminals show some columns.
std::vector<Item> row_of(const std::array<std::string, 7>& cells) {
  return {{fmt::format("{:<9}", cells[0]), 0},  {fmt::format(" {:>10}", cells[1]), 3},
          {fmt::format(" {:>8}", cells[2]), 5}, {fmt::format(" {:>10}", cells[3]), 4},
          {fmt::format(" {:>9}", cells[4]), 2}, {fmt::format(" {:>7}", cells[5]), 6},
          {fmt::format(" {:>9}", cells[6]), 1}};
}

std::vector<Item> row_of(const Suggestion& size) {
  const TrainConfig& config = size.config;
  const double tokens = static_cast<double>(config.batch_size * config.block_size);
  return row_of({fmt::format("{:>2} x {:<4}", config.n_layer, config.n_embd),
                 count_text(static_cast<double>(size.parameters)), std::to_string(size.vocab_size),
                 count_text(tokens / size.seconds), std::to_string(config.max_iters),
                 fmt::format("{:.1f}", size.passes), fmt::format("{:.2f}", size.bits)});
}

constexpr int64_t kFewestSteps = 100;

// From small to large, until two in a row are expected to be worse, there are too few steps, or too
// many parameters.
std::vector<Suggestion> tried(const TrainConfig& given, const TextFacts& text, double minutes,
                              Console& console) {
  std::vector<Suggestion> all;
  size_t best = 0;
  for (size_t row = 0; row < rows_of_sizes() && all.size() < best + 3; ++row) {
    Suggestion size = sizes(text, row);
    size.config.data = given.data;
    size.config.device = given.device;
    size.config.threads = given.threads;
    size.config.dtype = given.dtype;
    try {
      const Waiting waiting(
          console, fmt::format("measuring {} x {}", size.config.n_layer, size.config.n_embd));
      measure(size);
    } catch (const Error&) {  // too large for the memory
      if (all.empty()) throw;
      break;
    }
    set_steps(size, text, minutes);
    const bool fits = size.config.max_iters >= kFewestSteps && !learns_by_heart(size, text);
    if (!fits && !all.empty()) break;
    console.line(row_of(size));
    if (all.empty() || size.bits < all[best].bits) best = all.size();
    all.push_back(size);
  }
  std::swap(all.front(), all[best]);
  return all;
}

// bfloat16 where it is faster.
std::string faster_dtype(const TrainConfig& given, const TextFacts& text) {
  double seconds[2];
  for (const bool is_short : {false, true}) {
    Suggestion size = sizes(text, 2);
    size.config.device = given.device;
    size.config.dtype = is_short ? "bfloat16" : "float32";
    measure(size);
    seconds[is_short] = size.seconds;
  }
  return seconds[1] < 0.8 * seconds[0] ? "bfloat16" : "float32";
}

}  // namespace

int suggest_command(const Arguments& arguments) {
  CommandOptions command("suggest",
                         "Prints a command that trains on a text for so many minutes: sizes and "
                         "steps by the text's length and a few steps that it measures here.");
  TrainConfig given;
  double minutes = 20;
  command.add("--data", &given.data, "text files, or folders of them");
  command.add("--minutes", &minutes, "how long to train",
              {.shows_default = true, .limits = {.most = 1e5, .above = 0}});
  command.add("--device", &given.device, "cpu, cuda or cuda:N", {.shows_default = true});
  command.add("--threads", &given.threads, "CPU threads; 0: OMP_NUM_THREADS, or one per core",
              {.shows_default = true, .limits = {0, 1024}});
  if (!command.parse(arguments)) return kOk;
  if (given.data.empty()) throw UsageError("expected --data and a text");
  check_usage(given);
  const DataFiles files = data_files(given.data, {});
  if (files.are_ids) throw UsageError(files.train[0].string() + ": expected text, got token ids");
  if (!files.note.empty()) log_message(files.note);
  warn_of_slow_blas();
  Console console;
  const TextFacts text = [&] {
    const Waiting waiting(console, "looking at the text");
    return look_at(files.train);
  }();
  console.paragraph(fmt::format("{} bytes of text, {:.2f} bits per byte without context",
                                count_text(text.bytes), text.bits_without_context));
  given.dtype = faster_dtype(given, text);
  console.line(
      row_of({"sizes", "parameters", "tokens", "tokens/s", "steps", "passes", "bits/byte"}));
  const Suggestion best = tried(given, text, minutes, console)[0];
  const double seconds = static_cast<double>(best.config.max_iters) * best.seconds / 0.9;
  console.paragraph(fmt::format(
      "In {} on this machine ({}), expect about {:.2f} bits per byte of validation text from {} "
      "parameters, as a rule of thumb. The text is read {:.1f} times{}.",
      clock_text(std::min(60 * minutes, seconds)), best.config.dtype, best.bits,
      count_text(static_cast<double>(best.parameters)), best.passes,
      best.by_heart ? "; with more steps this model would learn it by heart" : ""));
  console.line(typed(train_arguments(best)));
  return kOk;
}

}  // namespace ink
