// inkling sample, eval, info
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "autograd/base/parallel.h"
#include "autograd/base/text.h"
#include "autograd/gemm/gemm.h"
#include "autograd/gemm/units.h"
#include "autograd/io/atomic_file.h"
#include "autograd/io/foreign.h"
#include "autograd/io/log.h"
#include "autograd/memory/device_backend.h"
#include "data/data_files.h"
#include "train/cli/attention_page.h"
#include "train/cli/command_line.h"
#include "train/cli/console.h"
#include "train/cli/model_options.h"
#include "train/cli/out_folder.h"
#include "train/cli/progress_line.h"
#include "train/parallel/nccl.h"
#include "train/parallel/processes.h"
#include "train/report/numbers.h"
#include "train/trainer.h"

namespace ink {
namespace {

CommandOptions::Rules up_to(double most) { return {.shows_default = true, .limits = {0, most}}; }

// On a terminal, in lines that fit.
void show(const std::string& text) { std::cout << filled(text, shown_columns(), 6); }

// What evaluations of a run are measured on.
std::string validation_text(const TrainConfig& config) {
  return config.eval_iters == 0
             ? "the whole validation set"
             : fmt::format("{} sampled batch{} of {}", config.eval_iters,
                           config.eval_iters == 1 ? "" : "es", config.batch_size);
}

void describe_checkpoint(const LoadedModel& loaded) {
  TextStream text;
  text << printable(fmt::format("checkpoint  {}, step {}\n", loaded.folder.string(), loaded.step));
  text << "trained on  " << printable(loaded.dataset, 200) << "\n";
  if (loaded.best_val_loss)
    text << "best validation loss " << fixed_number(*loaded.best_val_loss) << " over "
         << validation_text(loaded.config) << "\n";
  if (loaded.config.ema > 0)
    text << fmt::format("evaluated   an average of the weights, ema {}\n", loaded.config.ema);
  if (loaded.arithmetic) text << printable("arithmetic  " + loaded.arithmetic->text()) << "\n";
  text << *loaded.model << "\n";
  show(text.str());
}

// Writes a page with the attention weights for the end of a text, as long as the context.
void write_attention(const LoadedModel& loaded, std::vector<int64_t> ids, const std::string& file) {
  const auto seen = std::min(ids.size(), static_cast<size_t>(loaded.config.block_size));
  ids.erase(ids.begin(), ids.end() - static_cast<int64_t>(seen));
  std::vector<std::string> tokens;
  for (const int64_t id : ids) tokens.push_back(token_text(*loaded.tokenizer, id));
  const Tensor row = from_vector(ids, Shape{1, static_cast<int64_t>(seen)});
  const std::string title =
      fmt::format("Attention of {}, step {}", loaded.folder.string(), loaded.step);
  with_prefix("--attention", [&] {
    write_file(file, attention_page(title, tokens, loaded.model->attention_weights(row)));
  });
  std::cerr << "inkling: attention over the last " << seen << " tokens is in " << file << "\n";
}

struct SampleOptions {
  std::string start, attention;  // attention: a file for the page
  int64_t num_samples = 1, seed = 1337;
  bool strict = false;
  GenerateOptions generate;

  SampleOptions() { generate.max_new_tokens = -1; }
};

void write_samples(const LoadedModel& loaded, SampleOptions options) {
  if (options.start.empty()) options.start = loaded.start;
  if (!loaded.tokenizer->has_text())
    log_message("sample: ", loaded.folder.string(),
                " was trained on ids without a vocabulary, so it writes ids");
  const auto given = std::ssize(encoded_start(*loaded.tokenizer, options.start));
  if (options.generate.max_new_tokens < 0)
    options.generate.max_new_tokens = std::max<int64_t>(loaded.config.block_size - given, 100);
  Console console;
  for (int64_t i = 0; i < options.num_samples; ++i) {
    const bool last = i + 1 == options.num_samples;
    context().random = {.seed = static_cast<uint64_t>(options.seed),
                        .step = static_cast<uint64_t>(i)};
    const std::vector<int64_t> ids =
        write_sample(*loaded.model, *loaded.tokenizer, options.start, options.generate,
                     [&](const std::string& text) { console.write(text); });
    console.line(last ? "" : "\n---------------");
    if (!options.attention.empty() && last) write_attention(loaded, ids, options.attention);
  }
}

// Throws if the files that a run was trained on are gone, or hold something else by now: its loss
// there would be compared with the run's.
void check_own_data(const LoadedModel& loaded) {
  const TrainConfig& config = loaded.config;
  if (config.data.empty() || !config.task().empty()) return;
  const char* other = config.val_data.empty() ? "" : "; name what to measure: --data PLACE";
  files_of_run(loaded, config, other);
  const std::string got = fingerprint_of(config);
  const auto measured = [](const std::string& data) {  // the text to validate on, if it is apart
    return data.substr(std::min(data.find(", validated on "), data.size()));
  };
  const std::string apart = measured(loaded.data);
  INK_CHECK(loaded.data.empty() || got.empty() || got == loaded.data ||
                (!apart.empty() && measured(got) == apart),
            loaded.folder.string(), " was trained on ", loaded.data, ", got ", got,
            *other ? other
                   : "; name the same text with --data, or another one, of which all is measured");
}

}  // namespace

int sample_command(const Arguments& arguments) {
  CommandOptions command(
      "sample", "Lets a trained model write; the text goes to standard output as it is chosen.");
  ModelOptions model;
  SampleOptions options;
  model.add_to(command);
  command.add("--start", &options.start,
              "text to continue, in which <|endoftext|> is that token, or FILE:path; by default "
              "the beginning of a line. Of a text longer than the context, the model sees the end",
              {.may_be_empty = true});
  command.add("--num_samples", &options.num_samples, "how many texts",
              {.shows_default = true, .limits = {1, 1e9}});
  command.add("--max_new_tokens", &options.generate.max_new_tokens,
              "how many tokens to write; by default what the context has left after --start, and "
              "at least 100",
              {.limits = {0, 1e9}});
  command.add("--temperature", &options.generate.temperature,
              "below 1: safer; above 1: wilder; 0: always the likeliest token", up_to(1e6));
  command.add("--top_k", &options.generate.top_k,
              "choose only among the k likeliest tokens; 0: among all", up_to(1e9));
  command.add("--top_p", &options.generate.top_p,
              "choose only among the fewest likeliest tokens of this probability together",
              up_to(1));
  command.add("--min_p", &options.generate.min_p,
              "choose only among tokens at least this many times as likely as the likeliest",
              up_to(1));
  command.add(
      "--repetition_penalty", &options.generate.repetition_penalty,
      "above 1: tokens of the text so far, as much as the context holds, become less likely",
      {.shows_default = true, .limits = {.above = 0, .below = 1e6}});
  command.add("--seed", &options.seed, "seed of the choices", up_to(0x1p63));
  command.flag("--strict", options.strict,
               "on a CPU: each token has the bits that the model gives the whole text, whatever "
               "was cached; slower where the prompt is long");
  command.add("--attention", &options.attention,
              "write an HTML page that shows the last text with the weights of all heads");
  if (!command.parse(arguments)) return kOk;
  const FieldGuard on_device(&Context::default_device, parsed_device(model.device));

  options.start = given_text(options.start, "--attention", options.attention);
  check_not_of_run("--attention", model.out_dir, options.attention);
  check_is_file("--attention", options.attention);
  if (options.strict && !context().default_device.is_cpu())
    throw UsageError("--strict is for --device cpu: a GPU's products depend on the number of rows");
  const FlagGuard strict(&Context::strict, options.strict);
  write_samples(model.load(), options);
  return kOk;
}

int eval_command(const Arguments& arguments) {
  CommandOptions command("eval",
                         "Measures a trained model's loss on the whole validation set, in windows "
                         "of its context; a rest that is shorter is left out.");
  ModelOptions model;
  std::vector<std::string> data;
  model.add_to(command);
  command.add("--data", &data,
              "text files to use instead of the run's own, and all of them; the run's own in "
              "another place: what it validates on");
  if (!command.parse(arguments)) return kOk;
  const FieldGuard on_device(&Context::default_device, parsed_device(model.device));

  const LoadedModel loaded = model.load();
  TrainConfig config = loaded.config;
  if (data.empty()) {
    check_own_data(loaded);
  } else {
    config.data = data;
    config.val_data.clear();
    const bool same_task = !config.task().empty() && config.task() == loaded.config.task(),
               moved = !loaded.data.empty() && fingerprint_of(config) == loaded.data;
    if (!same_task && !moved) config.val_fraction = 1;  // the whole of it
    if (config.pack == "within" && config.task().empty() && !data_files(data, {}).are_prepared)
      config.pack = "across";  // other texts have no documents
  }
  const auto dataset = data.empty() ? make_dataset(config, loaded.tokenizer)
                                    : make_other_dataset(config, loaded, "eval");
  Console console;
  const Evaluation evaluation = [&] {
    ShownShare shown(console, "validation");
    return evaluate(*loaded.model, *dataset, 0, config.batch_size, 0, shown.stop());
  }();
  std::string text = loaded.folder.string() + ": loss " + fixed_number(evaluation.loss);
  if (evaluation.best_possible) {
    const double best = *evaluation.best_possible;
    text += fmt::format(" (best possible {}, {}{})", fixed_number(best),
                        evaluation.loss >= best ? "+" : "", above_best(evaluation.loss, best, 2));
  }
  const auto bits = evaluation.bits_per_byte();
  const std::string apart = dataset->val_name();
  text += fmt::format(" nats per token{}{} over {} tokens of {}{}",
                      bits ? ", " + fixed_number(*bits) + " bits per byte" : "",
                      evaluation.answers ? ", " + answers_text(*evaluation.answers) : "",
                      evaluation.tokens, apart.empty() ? "" : apart + "; trained on ",
                      dataset->summary());
  show(printable(text) + "\n");
  return kOk;
}

// How fast each unit of this processor multiplies, and which is used.
static void describe_units() {
  constexpr std::array dtypes{f32, bf16, f64};
  std::array<std::vector<double>, 3> rates;
  constexpr size_t kTable = 62;
  const bool narrow = shown_columns() < kTable;
  const size_t left = narrow ? 12 : 18, each = narrow ? 9 : 10;
  if (narrow) std::cout << "  GFLOP/s a thread (* used)\n";
  std::cout << fmt::format("  {:<{}}", narrow ? "" : "GFLOP/s a thread", left);
  for (size_t d = 0; d < dtypes.size(); ++d) {
    rates[d] = gemm_rates(dtypes[d]);
    std::cout << fmt::format("{:>{}}", name_of(dtypes[d]), each);
  }
  std::cout << (narrow ? "\n" : "   (* used)\n");
  for (size_t i = 0; i < gemm_units().size(); ++i) {
    std::cout << fmt::format("  {:<{}}", gemm_units()[i]->name, left);
    for (size_t d = 0; d < dtypes.size(); ++d) {
      const bool used = gemm_unit(dtypes[d]) == gemm_units()[i];
      std::cout << (rates[d][i] > 0
                        ? fmt::format("{:>{}.0f}{}", rates[d][i] / 1e9, each - 1, used ? '*' : ' ')
                        : fmt::format("{:>{}} ", "-", each - 1));
    }
    std::cout << "\n";
  }
}

int info_command(const Arguments& arguments) {
  CommandOptions command("info", "Shows this build, or what a checkpoint holds.");
  std::string out_dir, checkpoint;
  command.add("--out_dir", &out_dir, "show this run's checkpoint");
  ModelOptions::add_checkpoint(command, checkpoint);
  if (!command.parse(arguments)) return kOk;
  if (command.given("--checkpoint") && !command.given("--out_dir"))
    throw UsageError("--checkpoint is of a run: name its --out_dir, too");

  std::optional<LoadedModel> loaded;
  if (!out_dir.empty()) loaded = given_model(out_dir, checkpoint);
  show(fmt::format("inkling {}, {}, matrix products by {}\n", INKLING_VERSION, describe(cpu_device),
                   gemm_backend()));
  show(fmt::format("several processes: {}\n", processes_engine().empty()
                                                  ? "not in this build (-DINKLING_MPI=ON)"
                                                  : "over " + processes_engine()));
  if (cuda_backend != nullptr) show(fmt::format("GPUs of several processes: {}\n", nccl_version()));
  describe_units();
  for (int8_t i = 0; i < cuda_device_count(); ++i)
    std::cout << fmt::format("cuda:{}, {}\n", i, describe({Device::CUDA, i}));
  if (loaded) describe_checkpoint(*loaded);
  return kOk;
}

void warn_of_slow_blas() {
#if defined(__x86_64__)
  if (gemm_unit(f32) != openblas_unit() || !__builtin_cpu_supports("avx2")) return;
  const std::string backend = gemm_backend();
  for (const char* old : {"Sandybridge", "Nehalem", "Penryn", "Prescott", "Core2", "Generic"}) {
    if (backend.find(old) == std::string::npos) continue;
    std::cerr << "inkling: OpenBLAS multiplies matrices with its " << old
              << " kernels although this processor has AVX2; "
              << (std::getenv("OPENBLAS_CORETYPE") ? "unset OPENBLAS_CORETYPE"
                                                   : "set OPENBLAS_CORETYPE=Haswell")
              << " to be about twice as fast\n";
  }
#endif
}

}  // namespace ink
