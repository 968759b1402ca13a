#include "train/cli/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

#include "autograd/base/check.h"
#include "autograd/io/foreign.h"
#include "data/bpe/train.h"
#include "data/file.h"

namespace ink {
namespace {

constexpr size_t kMostRead = 2'000'000;
constexpr int64_t kFewest = 10'000;  // bytes
constexpr double kTrainedOn = 0.9;   // of the text: TrainConfig::val_fraction

struct Sizes {
  int64_t n_layer, n_head, n_embd, block_size;
};
// Each has about 2.3 times the parameters of the one before.
constexpr std::array<Sizes, 8> kSizes = {{{2, 2, 64, 64},
                                          {3, 3, 96, 64},
                                          {4, 4, 128, 64},
                                          {4, 6, 192, 128},
                                          {6, 8, 256, 128},
                                          {6, 6, 384, 256},
                                          {8, 8, 512, 256},
                                          {12, 12, 768, 256}}};
constexpr int64_t kTokensAStep = 1024;

// The numbers of expected_bits. They put runs of 1 to 10 minutes on texts of 1 and 20 MB in the
// order in which they came out (tests/benchmarks/RESULTS.md).
constexpr double kLowest = 0.365, kOfParameters = 1.42, kParameters = 0.25, kOfBytes = 129,
                 kBytes = 0.433;
constexpr double kAgain = 16;  // how often reading a text again is worth something
// More parameters for each byte of a text learn it by heart.
constexpr double kMostParameters = 12;
// From so many passes times parameters a byte on, dropout of 0.1, 0.2 and 0.3 helps more than it
// slows learning.
constexpr std::array<double, 3> kDropout = {12, 100, 600};
constexpr double kMostAgain = 1000;  // from here on, more steps learn it by heart all the same

double trained_on(const TextFacts& text) { return kTrainedOn * text.bytes; }

// A vocabulary of a text, of so many tokens.
std::unique_ptr<Tokenizer> learned(const bpe::Pieces& pieces, int64_t vocab_size) {
  bpe::TrainOptions options;
  options.vocab_size = vocab_size;
  return bpe::train(pieces, options);
}

double per_token(const Tokenizer& tokenizer, const std::string& sample) {
  return static_cast<double>(sample.size()) / static_cast<double>(tokenizer.encode(sample).size());
}

double entropy_per_byte(const Tokenizer& tokenizer, const std::string& sample) {
  std::unordered_map<int64_t, double> counts;
  const auto ids = tokenizer.encode(sample);
  for (const int64_t id : ids) ++counts[id];
  double bits = 0;
  for (const auto& [id, count] : counts)
    bits -= count * std::log2(count / static_cast<double>(ids.size()));
  return bits / static_cast<double>(sample.size());
}

}  // namespace

TextFacts look_at(const std::vector<std::filesystem::path>& files) {
  TextFacts facts;
  std::string sample;
  for (const auto& file : files) {
    const TextFile text(file);
    const std::string_view view = text.view();
    facts.bytes += static_cast<double>(view.size());
    sample += view.substr(0, kMostRead - sample.size());
    text.release(0, view.size());
  }
  INK_CHECK(facts.bytes >= kFewest, "suggest: expected ", kFewest, " bytes of text or more, got ",
            static_cast<int64_t>(facts.bytes));
  bpe::Pieces pieces;
  bpe::count_pieces(pieces, sample, bpe::Splitter(bpe::named_cuts("gpt2")));
  facts.bits_without_context = entropy_per_byte(*learned(pieces, 512), sample);
  facts.bytes_per_token = [pieces = std::move(pieces), sample = std::move(sample),
                           known =
                               std::unordered_map<int64_t, double>()](int64_t vocab_size) mutable {
    double& found = known[vocab_size];
    if (found == 0) found = per_token(*learned(pieces, vocab_size), sample);
    return found;
  };
  return facts;
}

int64_t suggested_vocabulary(double bytes, int64_t n_layer, int64_t n_embd) {
  auto size = static_cast<int64_t>(std::exp2(std::round(std::log2(bytes) / 2)));
  while (size > 32 * n_layer * n_embd) size /= 2;
  return std::clamp<int64_t>(size, 512, 32768);
}

double expected_bits(const TextFacts& text, double parameters, double bytes_seen) {
  // Text that is read again counts less and less (Muennighoff et al. 2023, arXiv 2305.16264).
  const double new_bytes = std::min(bytes_seen, trained_on(text)),
               again = bytes_seen / new_bytes - 1,
               worth = new_bytes * (1 + kAgain * (1 - std::exp(-again / kAgain)));
  return text.bits_without_context * (kLowest + kOfParameters * std::pow(parameters, -kParameters) +
                                      kOfBytes * std::pow(worth, -kBytes));
}

bool learns_by_heart(const Suggestion& size, const TextFacts& text) {
  return static_cast<double>(size.parameters) > kMostParameters * trained_on(text);
}

size_t rows_of_sizes() { return kSizes.size(); }

Suggestion sizes(const TextFacts& text, size_t row) {
  const auto& [n_layer, n_head, n_embd, block_size] = kSizes.at(row);
  Suggestion size;
  size.vocab_size = suggested_vocabulary(text.bytes, n_layer, n_embd);
  TrainConfig& config = size.config;
  config.tokenizer = "bpe:" + std::to_string(size.vocab_size);
  config.n_layer = n_layer, config.n_head = n_head, config.n_embd = n_embd;
  config.block_size = block_size;
  config.batch_size = kTokensAStep / block_size;
  config.learning_rate = 0.3 / static_cast<double>(n_embd);
  return size;
}

void set_steps(Suggestion& size, const TextFacts& text, double minutes) {
  TrainConfig& config = size.config;
  // A tenth of the time is for evaluations and samples.
  const double passes_a_step = static_cast<double>(kTokensAStep) *
                               text.bytes_per_token(size.vocab_size) / trained_on(text),
               parameters_a_byte = static_cast<double>(size.parameters) / trained_on(text),
               most = kMostAgain / (passes_a_step * parameters_a_byte),
               steps = std::min(0.9 * 60 * minutes / size.seconds, most);
  config.max_iters = static_cast<int64_t>(std::clamp(steps, 1.0, 1e9));
  config.warmup_iters = std::min<int64_t>(config.max_iters / 20, 100);
  config.eval_interval = std::max<int64_t>(config.max_iters / 10, 1);
  // Where evaluations would draw more than there is, they take all of it, which is faster.
  const double drawn = static_cast<double>(config.eval_iters) * passes_a_step;
  if (drawn * kTrainedOn > 1 - kTrainedOn) config.eval_iters = 0;
  size.passes = steps * passes_a_step;
  size.by_heart = steps == most;
  const double again = size.passes * parameters_a_byte;
  config.dropout =
      std::count_if(kDropout.begin(), kDropout.end(), [&](double from) { return again > from; }) /
      10.0;
  const auto in_blocks = static_cast<double>(12 * config.n_layer * config.n_embd * config.n_embd);
  size.bits = expected_bits(text, in_blocks, size.passes * trained_on(text));
}

std::string train_arguments(const Suggestion& size) {
  const TrainConfig &config = size.config, usual;
  std::string words = "train --data";
  for (const std::string& file : config.data) words += " " + for_shell(file);
  words += fmt::format(
      " --tokenizer {} --n_layer {} --n_head {} --n_embd {} --block_size {} --batch_size {} "
      "--learning_rate {:.2g} --max_iters {} --warmup_iters {} --eval_interval {}",
      config.tokenizer, config.n_layer, config.n_head, config.n_embd, config.block_size,
      config.batch_size, config.learning_rate, config.max_iters, config.warmup_iters,
      config.eval_interval);
  if (config.eval_iters != usual.eval_iters)
    words += fmt::format(" --eval_iters {}", config.eval_iters);
  if (config.dropout > 0) words += fmt::format(" --dropout {}", config.dropout);
  if (config.dtype != usual.dtype) words += " --dtype " + config.dtype;
  if (config.device != usual.device) words += " --device " + for_shell(config.device);
  if (config.threads != usual.threads) words += fmt::format(" --threads {}", config.threads);
  return words;
}

}  // namespace ink
