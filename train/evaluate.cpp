// The loss on validation data.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/base/context.h"
#include "autograd/base/parallel.h"
#include "autograd/memory/device_backend.h"
#include "autograd/random/generator.h"
#include "data/splitmix.h"
#include "train/parallel/processes.h"
#include "train/trainer.h"

namespace ink {
namespace {

// While it lives, a model is in evaluation mode. After that each of its modules is as before.
class EvaluationMode {
 public:
  explicit EvaluationMode(Module& model) {
    model.apply([this](Module& m) { were_.emplace_back(&m, std::exchange(m.training, false)); });
  }
  ~EvaluationMode() {
    for (const auto& [module, training] : were_) module->training = training;
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<std::pair<Module*, bool>> were_;
};

// By id, the bytes of a token's text: none of the end of a document. Empty if another has none:
// then its text is not known.
std::vector<int64_t> bytes_of_tokens(const Tokenizer& tokenizer) {
  std::vector<int64_t> bytes;
  if (!tokenizer.has_text()) return bytes;
  const int64_t end = tokenizer.end_of_text();
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const bool ends = id == end;
    bytes.push_back(ends ? 0 : std::ssize(tokenizer.decode({&id, 1})));
    if (bytes.back() == 0 && !ends) return {};
  }
  return bytes;
}

// How many whole answers a batch has, and how many of them are right: each token is the likeliest
// after all before. So they are what the model would write itself.
std::pair<int64_t, int64_t> answers_of(const LanguageModel& model, const Batch& batch) {
  std::pair<int64_t, int64_t> counts{0, 0};
  if (batch.answer.empty()) return counts;
  const std::vector<int64_t> likeliest =
      argmax(model(ids_tensor(batch.x, batch.batch_size)), -1).tolist<int64_t>();
  bool right = true;
  for (size_t i = 0; i < batch.answer.size(); ++i) {
    if (batch.answer[i] == 0) continue;
    right = right && likeliest[i] == batch.y[i];
    if (batch.answer[i] != 2) continue;
    ++counts.first;
    counts.second += std::exchange(right, true);
  }
  return counts;
}

}  // namespace

std::optional<double> Evaluation::bits_per_byte() const {
  if (bytes == 0) return {};
  return loss / std::numbers::ln2 * static_cast<double>(tokens) / static_cast<double>(bytes);
}

// Each thread takes batches of its own, unless there are observers. The losses are summed in order.
Evaluation evaluate(LanguageModel& model, const Dataset& dataset, int64_t batches,
                    int64_t batch_size, uint64_t seed, const StopEvaluation& stop) {
  Processes alone;
  return evaluate(model, dataset, batches, batch_size, seed, stop, alone);
}

Evaluation evaluate(LanguageModel& model, const Dataset& dataset, int64_t batches,
                    int64_t batch_size, uint64_t seed, const StopEvaluation& stop,
                    Processes& group) {
  const EvaluationMode evaluating(model);
  const int64_t block = model.config.block_size;
  const int64_t rows = batches > 0 ? batches * batch_size : dataset.val_windows(block);
  struct Part {
    double loss = 0;  // the sum over the batch
    double targets = 0, rows = 0, best_possible = 0;
    bool best_possible_known = false;
    int64_t bytes = 0, answers = 0, right = 0;
  };
  const std::vector<int64_t> token_bytes = bytes_of_tokens(dataset.tokenizer());
  std::vector<Part> parts(static_cast<size_t>((rows + batch_size - 1) / batch_size));
  std::atomic<bool> stopped = false;
  std::atomic<int64_t> done = 0;
  const auto [own, own_end] = group.share(std::ssize(parts));
  const int64_t count_own = own_end - own;
  std::vector<Tensor> losses(parts.size());  // read after all were launched
  Context caller = context();
  if (group.size() > 1 && parts.size() > 1) caller.threads = 1;  // as where one process has several
  const int64_t threads = caller.observers.empty() ? host_threads(caller.default_device) : 1;
  parallel_for(
      count_own, (count_own + threads - 1) / threads,
      [&, first_own = own](int64_t begin, int64_t end) {
        const ContextGuard guard(caller);
        const NoGrad no_grad;
        for (int64_t i = first_own + begin; i < first_own + end && !stopped; ++i) {
          if (stop && stop(static_cast<double>(done) / static_cast<double>(count_own)))
            stopped = true;
          const int64_t first = i * batch_size, count = std::min(batch_size, rows - first);
          const Batch batch = batches > 0
                                  ? dataset.val_batch(seed, static_cast<uint64_t>(i), count, block)
                                  : dataset.val_window_batch(first, count, block);
          Generator generator(splitmix::mix(seed) + static_cast<uint64_t>(i));
          const FieldGuard draws(&Context::generator,
                                 caller.imitate_torch ? caller.generator : &generator);
          losses[static_cast<size_t>(i)] =
              model.loss(ids_tensor(batch.x, count), ids_tensor(batch.y, count), Reduction::sum);
          const auto ignored = std::count(batch.y.begin(), batch.y.end(), kIgnored);
          int64_t bytes = 0;
          for (const int64_t id : batch.y)
            if (id != kIgnored && !token_bytes.empty())
              bytes += token_bytes.at(static_cast<size_t>(id));
          const auto [answers, right] = answers_of(model, batch);
          parts[static_cast<size_t>(i)] = {0,
                                           static_cast<double>(std::ssize(batch.y) - ignored),
                                           static_cast<double>(count),
                                           batch.mean_best_possible(),
                                           !batch.best_possible.empty(),
                                           bytes,
                                           answers,
                                           right};
          ++done;
        }
      });
  Evaluation result;
  for (int64_t i = own; i < own_end && !stopped; ++i)
    parts[static_cast<size_t>(i)].loss = losses[static_cast<size_t>(i)].item();
  result.whole = group.gather_shares(parts, !stopped);
  if (!result.whole) return result;
  int64_t bytes = 0, answers = 0, right = 0;
  double loss = 0, targets = 0, best_possible = 0;
  bool best_possible_known = false;
  for (const Part& part : parts) {
    loss += part.loss;
    targets += part.targets;
    best_possible += part.best_possible * part.rows;
    best_possible_known = part.best_possible_known;
    bytes += part.bytes;
    answers += part.answers;
    right += part.right;
  }
  INK_CHECK(targets > 0, "evaluate: the validation part has no targets; give more text");
  result.loss = loss / targets;
  result.tokens = static_cast<int64_t>(targets);
  result.bytes = bytes;
  if (answers > 0) result.answers = static_cast<double>(right) / static_cast<double>(answers);
  if (best_possible_known) result.best_possible = best_possible / static_cast<double>(rows);
  return result;
}

}  // namespace ink
